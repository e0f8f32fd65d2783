use std::cell::RefCell;

use tempfile::TempDir;

use super::*;
use crate::device::DriverFailure;

/// Fake driver: records its calls, produces `ELF` followed by text, and rejects chosen machine code.
#[derive(Default)]
struct Fake {
    calls: RefCell<Vec<String>>,
    /// Text that rejected machine code contains, and the error code.
    rejects: Option<(&'static str, u32)>,
    cannot_link: bool,
}

fn failure(code: u32) -> Error {
    Error::Driver(Box::new(DriverFailure {
        call: "cuModuleLoadDataEx",
        doing: "testing".to_owned(),
        code,
        name: format!("CUDA_ERROR_{code}"),
        description: String::new(),
        help: None,
    }))
}

impl Fake {
    fn note(&self, what: &str, text: &str) {
        self.calls.borrow_mut().push(format!("{what} {text}"));
    }

    fn calls(&self) -> String {
        self.calls.take().join(", ")
    }
}

impl Assembler for Fake {
    type Module = String;

    fn load(&self, cubin: &[u8]) -> Result<String> {
        let text = String::from_utf8_lossy(&cubin[ELF.len()..]).into_owned();
        self.note("load", &text);
        match self.rejects {
            Some((part, code)) if text.contains(part) => Err(failure(code)),
            _ => Ok(text),
        }
    }

    fn link(&self, ptx: &str) -> Result<Assembled<Vec<u8>>> {
        self.note("link", ptx);
        if self.cannot_link {
            return Err(failure(801));
        }
        Ok(Assembled { result: elf(&format!("linked {ptx}")), log: "linked".to_owned() })
    }

    fn assemble(&self, ptx: &str) -> Result<Assembled<String>> {
        self.note("assemble", ptx);
        if ptx == "broken" {
            return Err(failure(218));
        }
        Ok(Assembled { result: format!("assembled {ptx}"), log: "assembled".to_owned() })
    }
}

fn elf(text: &str) -> Vec<u8> {
    [ELF, text.as_bytes()].concat()
}

/// A device of compute capability 9.0.
fn new_loader(cache: Option<&TempDir>, driver: &str) -> ModuleLoader {
    let cache = cache.map(|folder| Cache::new(folder.path(), 1 << 20));
    ModuleLoader { compute: (9, 0), driver: driver.to_owned(), cache, rejected: Once::new() }
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// Loads a module; returns the module, its origin, and the driver calls.
fn load(loader: &ModuleLoader, fake: &Fake, source: &ModuleSource<'_>) -> (String, CodeOrigin, String) {
    let loaded = loader.load(fake, source).expect("it loads");
    (loaded.module, loaded.origin, fake.calls())
}

fn expect(module: &str, origin: CodeOrigin, calls: &str) -> (String, CodeOrigin, String) {
    (module.to_owned(), origin, calls.to_owned())
}

#[test]
fn built_in_machine_code_is_loaded_on_a_matching_device() {
    let (folder, fake, cubin) = (folder(), Fake::default(), elf("embedded"));
    let loader = new_loader(Some(&folder), "driver");
    let source = |compute| ModuleSource {
        machine_code: Some(MachineCode { compute, cubin: &cubin }),
        ..ModuleSource::ptx("k", "text")
    };
    assert_eq!(
        load(&loader, &fake, &source((9, 0))),
        expect("embedded", CodeOrigin::Embedded, "load embedded")
    );
    for other in [(8, 0), (8, 9), (9, 1), (10, 0)] {
        loader.cache.as_ref().unwrap().remove(loader.key("text"));
        let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
        assert_eq!(load(&loader, &fake, &source(other)), assembled, "{other:?}");
    }
}

#[test]
fn assembled_code_is_cached() {
    let (folder, fake) = (folder(), Fake::default());
    let first = new_loader(Some(&folder), "driver 1");
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    let cached = expect("linked text", CodeOrigin::Cached, "load linked text");
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("k", "text")), assembled);
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("another name", "text")), cached);
    assert_eq!(
        load(&new_loader(Some(&folder), "driver 2"), &fake, &ModuleSource::ptx("k", "text")),
        assembled
    );
    let other_device = ModuleLoader { compute: (8, 9), ..new_loader(Some(&folder), "driver 1") };
    assert_eq!(load(&other_device, &fake, &ModuleSource::ptx("k", "text")), assembled);
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("k", "text")), cached);
}

#[test]
fn without_a_cache_the_linker_is_not_used() {
    let fake = Fake::default();
    let loaded = load(&new_loader(None, "driver"), &fake, &ModuleSource::ptx("k", "text"));
    assert_eq!(loaded, expect("assembled text", CodeOrigin::Assembled, "assemble text"));
}

#[test]
fn rejected_machine_code_falls_back_to_the_ptx() {
    for code in [200, 209, 218, 222, 300] {
        let folder = folder();
        let fake = Fake { rejects: Some(("embedded", code)), ..Fake::default() };
        let cubin = elf("embedded");
        let machine_code = Some(MachineCode { compute: (9, 0), cubin: &cubin });
        let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
        let calls = "load embedded, link text, load linked text";
        let loader = new_loader(Some(&folder), "driver");
        assert_eq!(load(&loader, &fake, &source), expect("linked text", CodeOrigin::Assembled, calls));
    }
}

#[test]
fn invalid_machine_code_is_not_passed_to_the_driver() {
    let (folder, fake) = (folder(), Fake::default());
    let loader = new_loader(Some(&folder), "driver");
    loader.cache.as_ref().unwrap().put(loader.key("text"), b"not a cubin").unwrap();
    let machine_code = Some(MachineCode { compute: (9, 0), cubin: b"" });
    let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    assert_eq!(load(&loader, &fake, &source), assembled);
    assert_eq!(load(&loader, &fake, &source), expect("linked text", CodeOrigin::Cached, "load linked text"));
}

#[test]
fn a_rejected_cache_entry_is_removed() {
    let folder = folder();
    let loader = new_loader(Some(&folder), "driver");
    let source = ModuleSource::ptx("k", "text");
    loader.load(&Fake::default(), &source).unwrap();
    let rejecting = Fake { rejects: Some(("linked", 200)), ..Fake::default() };
    let calls = "load linked text, link text, load linked text, assemble text";
    assert_eq!(load(&loader, &rejecting, &source), expect("assembled text", CodeOrigin::Assembled, calls));
    assert_eq!(loader.cache.as_ref().unwrap().get(loader.key("text")), None);
}

#[test]
fn a_failing_linker_falls_back_to_the_assembler() {
    let folder = folder();
    let loader = new_loader(Some(&folder), "driver");
    let fake = Fake { cannot_link: true, ..Fake::default() };
    let loaded = load(&loader, &fake, &ModuleSource::ptx("k", "text"));
    assert_eq!(loaded, expect("assembled text", CodeOrigin::Assembled, "link text, assemble text"));
    let error = loader.load(&fake, &ModuleSource::ptx("k", "broken")).expect_err("the PTX is broken");
    assert!(error.to_string().contains("CUDA_ERROR_218"), "{error}");
}

#[test]
fn a_read_only_cache_is_not_an_error() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let loader = ModuleLoader { cache: Some(Cache::new(file, 1 << 20)), ..new_loader(None, "driver") };
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    for _ in 0..2 {
        assert_eq!(load(&loader, &Fake::default(), &ModuleSource::ptx("k", "text")), assembled);
    }
}

#[test]
fn other_driver_errors_are_returned() {
    let folder = folder();
    let fake = Fake { rejects: Some(("embedded", 2)), ..Fake::default() };
    let cubin = elf("embedded");
    let machine_code = Some(MachineCode { compute: (9, 0), cubin: &cubin });
    let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
    let error = new_loader(Some(&folder), "driver").load(&fake, &source).expect_err("no memory");
    assert!(matches!(&error, Error::Driver(failure) if failure.code == 2), "{error}");
    assert_eq!(fake.calls(), "load embedded");
}

#[cfg(unix)]
#[test]
fn the_environment_names_the_cache() {
    let folder = |value: &str| cache_folder(Some(value.into()));
    assert_eq!(folder("/tmp/here"), Some("/tmp/here".into()));
    assert_eq!([folder("none"), folder(""), cache_folder(None)], [None, None, None]);
}
