//! Kernels and device functions: names, parameters, and directives before the body.

use super::names::Names;
use super::{Parser, body};
use crate::load::ast::{Function, ParamDecl, Prototype, RegId, Register};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::types::Ty;

/// Largest size of a parameter, in bytes.
const MAX_PARAM_BYTES: u32 = 32764;

impl Parser<'_> {
    /// Parses a kernel, after `.entry`.
    pub(super) fn entry(&mut self) -> Result<(), ParseError> {
        let at = self.here();
        let mut function = Function { name: self.ident("a kernel name")?.to_string(), ..Function::default() };
        self.declare("kernel", &function.name, at);
        let outside = self.ast.errors.len();
        let mut names = Names::default();
        function.params = self.params(&mut function, &mut names)?;
        self.attributes(&mut function)?;
        body::parse(self, &mut function, names, true)?;
        function.errors = self.ast.errors.split_off(outside);
        self.ast.functions.push(function);
        Ok(())
    }

    /// Parses a device function, after `.func`: `(results) name (parameters)`, then a body, or a `;` if it is only
    /// declared.
    pub(super) fn device_function(&mut self) -> Result<(), ParseError> {
        let mut function = Function::default();
        let mut names = Names::default();
        self.attributes(&mut function)?;
        function.returns = self.params(&mut function, &mut names)?;
        let at = self.here();
        function.name = self.ident("a function name")?.to_string();
        function.params = self.params(&mut function, &mut names)?;
        self.attributes(&mut function)?;
        let name = function.name.clone();
        if self.take(';') {
            self.ast.device.entry(name).or_insert(None);
            return Ok(());
        }
        self.declare("function", &name, at);
        let outside = self.ast.errors.len();
        body::parse(self, &mut function, names, false)?;
        function.errors = self.ast.errors.split_off(outside);
        self.ast.device.insert(name, Some(function));
        Ok(())
    }

    /// Parses `label: .callprototype (results) _ (parameters);` or `label: .calltargets f, g;`.
    pub(super) fn prototype(&mut self) -> Result<Prototype, ParseError> {
        self.at += 2;
        let prototype = if self.take_dot("calltargets") {
            let mut targets = vec![self.ident("a function name")?.to_string()];
            while self.take(',') {
                targets.push(self.ident("a function name")?.to_string());
            }
            Prototype::Targets(targets)
        } else {
            self.at += 1;
            let (mut function, mut names) = (Function::default(), Names::default());
            let bytes = |params: Vec<ParamDecl>| params.iter().map(|param| param.bytes).collect();
            let returns = bytes(self.params(&mut function, &mut names)?);
            self.ident("`_`")?;
            let params = bytes(self.params(&mut function, &mut names)?);
            self.attributes(&mut function)?;
            Prototype::Signature { returns, params }
        };
        self.expect(';')?;
        Ok(prototype)
    }

    /// Parses the list of parameters or results in parentheses, if there is one.
    fn params(&mut self, function: &mut Function, names: &mut Names) -> Result<Vec<ParamDecl>, ParseError> {
        let mut params = Vec::new();
        if self.take('(') {
            while !self.take(')') {
                if !params.is_empty() {
                    self.expect(',')?;
                }
                let (param, at) = self.param(function)?;
                // A declaration without a body may have `_` for every name.
                if param.name != "_"
                    && let Err(error) = names.declare("parameter", &param.name, at)
                {
                    self.report(error);
                }
                params.push(param);
            }
        }
        Ok(params)
    }

    /// Parses the directives of a kernel or device function that precede its body.
    fn attributes(&mut self, function: &mut Function) -> Result<(), ParseError> {
        loop {
            match self.peek() {
                Token::Dot("reqntid") => function.reqntid = Some(self.dimensions()?),
                Token::Dot("maxntid") => function.maxntid = Some(self.dimensions()?),
                Token::Dot(directive @ ("reqnctapercluster" | "explicitcluster" | "maxclusterrank")) => {
                    if let Some(message) = self.platform.missing_for_cluster_directive(directive) {
                        let error = self.error_of(ParseErrorKind::Target, message);
                        self.report(error);
                    }
                    self.cluster_directive(directive, function)?;
                }
                Token::Dot(directive @ ("minnctapersm" | "maxnctapersm" | "maxnreg" | "noreturn")) => {
                    self.at += 1;
                    if let Token::Int(number) = self.peek() {
                        self.at += 1;
                        let number = u32::try_from(number).ok();
                        match directive {
                            "minnctapersm" => function.register_limits.min_ctas = number,
                            "maxnreg" => function.register_limits.per_thread = number,
                            _ => {}
                        }
                    }
                }
                Token::Dot("pragma") => {
                    self.at += 1;
                    self.next();
                    self.expect(';')?;
                }
                Token::Dot(other) => return Err(self.unknown_word(&format!("directive `.{other}`"), other)),
                _ => return Ok(()),
            }
        }
    }

    /// Parses a directive about thread block clusters.
    fn cluster_directive(&mut self, directive: &str, function: &mut Function) -> Result<(), ParseError> {
        match directive {
            "reqnctapercluster" => function.clusters.required = Some(self.dimensions()?),
            "explicitcluster" => {
                self.at += 1;
                function.clusters.explicit = true;
            }
            _ => {
                self.at += 1;
                function.clusters.max_ctas = Some(self.int_u32("a number of CTAs")?);
            }
        }
        Ok(())
    }

    /// Parses up to three dimensions after a directive; missing dimensions are 1.
    fn dimensions(&mut self) -> Result<[u32; 3], ParseError> {
        self.at += 1;
        let mut dimensions = [self.int_u32("a dimension")?, 1, 1];
        for dimension in &mut dimensions[1..] {
            if !self.take(',') {
                break;
            }
            *dimension = self.int_u32("a dimension")?;
        }
        Ok(dimensions)
    }

    /// Parses a parameter such as `.param .u64 .ptr .global .align 16 name` or `.param .align 8 .b8 name[64]`, in
    /// device functions also `.reg .b32 name`. Also returns the position of the name.
    fn param(&mut self, function: &mut Function) -> Result<(ParamDecl, (u32, u32)), ParseError> {
        let in_register = self.take_dot("reg");
        if !in_register && !self.take_dot("param") {
            return self.expected("`.param`");
        }
        let (mut align, mut ty, mut pointer) = (None, None, false);
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            match word {
                // After `.ptr`, `.align` is the alignment of the memory that the pointer points to.
                "align" if pointer => drop(self.align()?),
                "align" => align = Some(self.align()?),
                "ptr" => pointer = true,
                "global" | "shared" | "const" | "local" if pointer => {}
                _ => match Ty::parse(word) {
                    Some(found) if found != Ty::Pred => ty = Some(found),
                    _ => {
                        self.at -= 1;
                        return Err(self.unknown_word(&format!("attribute `.{word}` of a parameter"), word));
                    }
                },
            }
        }
        let Some(ty) = ty else { return self.expected("the parameter's type") };
        let at = self.here();
        let name = self.ident("the parameter's name")?.to_string();
        let mut bytes = ty.bytes();
        let register = in_register.then(|| {
            function.registers.push(Register { name: name.clone(), ty });
            function.registers.len() as RegId - 1
        });
        if self.take('[') {
            let count = self.int_u32("the parameter's size")?;
            bytes = match bytes.checked_mul(count) {
                Some(bytes) if bytes <= MAX_PARAM_BYTES => bytes,
                _ => {
                    let message = format!("parameter `{name}` is larger than {MAX_PARAM_BYTES} bytes");
                    return Err(self.error_of(ParseErrorKind::Target, message));
                }
            };
            self.expect(']')?;
        }
        Ok((ParamDecl { name, ty, bytes, align: align.unwrap_or(ty.bytes()), register }, at))
    }
}
