//! Recording of called functions (`#[device(call)]`).

use cranelift_entity::packed_option::ReservedValue;
use smallvec::SmallVec;

use crate::dsl::recorder::{
    FOREIGN, RecordError, Recorder, Site, emit, emit1, error_of, fail, new_recording, run, with,
};
use crate::dsl::replay::replay_paths;
use crate::ir::print::without_locs;
use crate::ir::{Callee, Function, Op, Param, Type, Value};

/// Records the call of a function that is not inlined, and returns its results. `arguments` are the handles that are
/// passed; `body` declares the parameters and sets the results.
///
/// The function is recorded at each call. Calls whose recordings are equal share one function.
pub(in crate::dsl) fn record_call(
    name: &str,
    [definition, site]: [Site; 2],
    arguments: &[Value],
    body: &mut dyn FnMut(),
) -> SmallVec<[Value; 2]> {
    let caller = with(|r| r.func.name.clone());
    let callee = match with(|r| r.start_call(name, definition, arguments)) {
        Ok(callee) => callee,
        Err(message) => fail(site, message),
    };
    let again = callee.again;
    let recording = new_recording();
    let recorded = || {
        let (mut callee, outcome) = run(callee, recording, body);
        outcome.map_err(|payload| error_of(payload, &caller, definition))?;
        callee.terminate(Op::Return, &[], Vec::new(), definition);
        if again { Ok(callee) } else { replay_paths(callee, recording, body, definition) }
    };
    match recorded() {
        Ok(callee) => {
            let callee = with(|r| r.finish_call(callee.func));
            emit(Op::Call(callee), Type::U32, arguments, site)
        }
        Err(mut error) => {
            error.callers.push(site.to_string());
            error.callers.extend(with(|r| r.callers()));
            std::panic::resume_unwind(Box::new(RecordError { kernel: caller, ..error }))
        }
    }
}

/// The name of a Rust function as a name of PTX, which has ASCII letters only.
fn identifier(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

impl Recorder {
    /// A recorder for a called function. It takes over the kernel's list of functions, which `finish_call` takes
    /// back.
    fn start_call(&mut self, name: &str, definition: Site, arguments: &[Value]) -> Result<Recorder, String> {
        if self.active.contains(&definition) {
            return Err(format!(
                "`{name}` calls itself: a function with `#[device(call)]` cannot be recursive; write a loop, or `#[device]` \
                 if a compile-time condition ends the recursion"
            ));
        }
        self.check_uses(arguments)?;
        let mut callee = Recorder::new(&identifier(name));
        callee.active = self.active.iter().copied().chain([definition]).collect();
        callee.again = self.again || self.is_replay();
        let params = arguments.iter().enumerate().map(|(index, &value)| Param {
            name: format!("p{index}"),
            ty: self.func.value_type(value),
            element: None,
            align: None,
            tensor: None,
        });
        callee.func.params = params.collect();
        callee.func.results = Some(Vec::new());
        callee.func.functions = std::mem::take(&mut self.func.functions);
        Ok(callee)
    }

    /// Takes the list of functions back; finds the recorded function in it, or adds it.
    fn finish_call(&mut self, mut function: Function) -> Callee {
        self.func.functions = std::mem::take(&mut function.functions);
        let base = function.name.clone();
        let mut number = 1;
        loop {
            let Some(known) = self.func.functions.iter().find(|known| known.name == function.name) else {
                let callee = function.as_callee();
                self.func.functions.push(function);
                return callee;
            };
            if without_locs(known).to_string() == without_locs(&function).to_string() {
                return known.as_callee();
            }
            number += 1;
            function.name = format!("{base}_{number}");
        }
    }

    /// Declares the next result of the called function.
    fn next_result(&mut self, ty: Type) -> u32 {
        match self.next_op() {
            Some(Op::Result(index)) => index,
            Some(_) => u32::MAX,
            None => {
                let results = self.func.results.get_or_insert_default();
                results.push(ty);
                results.len() as u32 - 1
            }
        }
    }
}

/// Declares the parameters of the called function, which stand for the arguments.
pub(in crate::dsl) fn call_parameters(count: usize, site: Site) -> Vec<Value> {
    let types: Vec<Type> = with(|r| r.func.params.iter().map(|param| param.ty).collect());
    let params = types.into_iter().take(count).enumerate();
    params.map(|(index, ty)| emit1(Op::Param(index as u32), ty, &[], site)).collect()
}

/// Sets the results of the called function.
pub(in crate::dsl) fn call_results(values: &[Value], site: Site) {
    for &value in values {
        if value.is_reserved_value() {
            fail(site, FOREIGN);
        }
        let (index, ty) = with(|r| {
            let ty = r.func.value_type(value);
            (r.next_result(ty), ty)
        });
        emit(Op::Result(index), ty, &[value], site);
    }
}
