use std::cell::RefCell;

use tempfile::TempDir;

use super::*;
use crate::device::DriverFailure;

/// A driver that notes what it is asked, makes `ELF` and a text of a text, and refuses what it is told to.
#[derive(Default)]
struct Fake {
    asked: RefCell<Vec<String>>,
    /// What machine code must contain to be refused, and the code.
    refuses: Option<(&'static str, u32)>,
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
        self.asked.borrow_mut().push(format!("{what} {text}"));
    }

    fn asked(&self) -> String {
        self.asked.take().join(", ")
    }
}

impl Assembler for Fake {
    type Module = String;

    fn load(&self, cubin: &[u8]) -> Result<String> {
        let text = String::from_utf8_lossy(&cubin[ELF.len()..]).into_owned();
        self.note("load", &text);
        match self.refuses {
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
fn images(cache: Option<&TempDir>, driver: &str) -> ModuleLoader {
    let cache = cache.map(|folder| Cache::new(folder.path(), 1 << 20));
    ModuleLoader { compute: (9, 0), driver: driver.to_owned(), cache, refused: Once::new() }
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

/// Loads; what was loaded, where from, and what the driver was asked.
fn load(images: &ModuleLoader, fake: &Fake, source: &ModuleSource<'_>) -> (String, CodeOrigin, String) {
    let loaded = images.load(fake, source).expect("it loads");
    (loaded.module, loaded.origin, fake.asked())
}

fn expect(module: &str, origin: CodeOrigin, asked: &str) -> (String, CodeOrigin, String) {
    (module.to_owned(), origin, asked.to_owned())
}

#[test]
fn machine_code_for_exactly_this_device_is_loaded_as_it_is() {
    let (folder, fake, cubin) = (folder(), Fake::default(), elf("embedded"));
    let images = images(Some(&folder), "driver");
    let source = |compute| ModuleSource {
        machine_code: Some(MachineCode { compute, cubin: &cubin }),
        ..ModuleSource::ptx("k", "text")
    };
    assert_eq!(
        load(&images, &fake, &source((9, 0))),
        expect("embedded", CodeOrigin::Embedded, "load embedded")
    );
    for other in [(8, 0), (8, 9), (9, 1), (10, 0)] {
        images.cache.as_ref().unwrap().remove(images.key("text"));
        let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
        assert_eq!(load(&images, &fake, &source(other)), assembled, "{other:?}");
    }
}

#[test]
fn what_was_assembled_once_is_found_again() {
    let (folder, fake) = (folder(), Fake::default());
    let first = images(Some(&folder), "driver 1");
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    let cached = expect("linked text", CodeOrigin::Cached, "load linked text");
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("k", "text")), assembled);
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("another name", "text")), cached);
    assert_eq!(load(&images(Some(&folder), "driver 2"), &fake, &ModuleSource::ptx("k", "text")), assembled);
    let other_device = ModuleLoader { compute: (8, 9), ..images(Some(&folder), "driver 1") };
    assert_eq!(load(&other_device, &fake, &ModuleSource::ptx("k", "text")), assembled);
    assert_eq!(load(&first, &fake, &ModuleSource::ptx("k", "text")), cached);
}

#[test]
fn without_a_cache_the_driver_assembles_and_loads_in_one() {
    let fake = Fake::default();
    let loaded = load(&images(None, "driver"), &fake, &ModuleSource::ptx("k", "text"));
    assert_eq!(loaded, expect("assembled text", CodeOrigin::Assembled, "assemble text"));
}

#[test]
fn refused_machine_code_gives_way_to_the_text() {
    for code in [200, 209, 218, 222, 300] {
        let folder = folder();
        let fake = Fake { refuses: Some(("embedded", code)), ..Fake::default() };
        let cubin = elf("embedded");
        let machine_code = Some(MachineCode { compute: (9, 0), cubin: &cubin });
        let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
        let asked = "load embedded, link text, load linked text";
        let images = images(Some(&folder), "driver");
        assert_eq!(load(&images, &fake, &source), expect("linked text", CodeOrigin::Assembled, asked));
    }
}

#[test]
fn what_is_no_machine_code_never_reaches_the_driver() {
    let (folder, fake) = (folder(), Fake::default());
    let images = images(Some(&folder), "driver");
    images.cache.as_ref().unwrap().put(images.key("text"), b"whole, and no cubin").unwrap();
    let machine_code = Some(MachineCode { compute: (9, 0), cubin: b"" });
    let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    assert_eq!(load(&images, &fake, &source), assembled);
    assert_eq!(load(&images, &fake, &source), expect("linked text", CodeOrigin::Cached, "load linked text"));
}

#[test]
fn a_refused_entry_of_the_cache_is_removed() {
    let folder = folder();
    let images = images(Some(&folder), "driver");
    let source = ModuleSource::ptx("k", "text");
    images.load(&Fake::default(), &source).unwrap();
    let refusing = Fake { refuses: Some(("linked", 200)), ..Fake::default() };
    let asked = "load linked text, link text, load linked text, assemble text";
    assert_eq!(load(&images, &refusing, &source), expect("assembled text", CodeOrigin::Assembled, asked));
    assert_eq!(images.cache.as_ref().unwrap().get(images.key("text")), None);
}

#[test]
fn a_driver_that_cannot_link_still_assembles() {
    let folder = folder();
    let images = images(Some(&folder), "driver");
    let fake = Fake { cannot_link: true, ..Fake::default() };
    let loaded = load(&images, &fake, &ModuleSource::ptx("k", "text"));
    assert_eq!(loaded, expect("assembled text", CodeOrigin::Assembled, "link text, assemble text"));
    let error = images.load(&fake, &ModuleSource::ptx("k", "broken")).expect_err("the text is broken");
    assert!(error.to_string().contains("CUDA_ERROR_218"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_costs_nothing_but_time() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let images = ModuleLoader { cache: Some(Cache::new(file, 1 << 20)), ..images(None, "driver") };
    let assembled = expect("linked text", CodeOrigin::Assembled, "link text, load linked text");
    for _ in 0..2 {
        assert_eq!(load(&images, &Fake::default(), &ModuleSource::ptx("k", "text")), assembled);
    }
}

#[test]
fn a_device_out_of_memory_is_no_reason_to_assemble() {
    let folder = folder();
    let fake = Fake { refuses: Some(("embedded", 2)), ..Fake::default() };
    let cubin = elf("embedded");
    let machine_code = Some(MachineCode { compute: (9, 0), cubin: &cubin });
    let source = ModuleSource { machine_code, ..ModuleSource::ptx("k", "text") };
    let error = images(Some(&folder), "driver").load(&fake, &source).expect_err("no memory");
    assert!(matches!(&error, Error::Driver(failure) if failure.code == 2), "{error}");
    assert_eq!(fake.asked(), "load embedded");
}

#[cfg(unix)]
#[test]
fn the_environment_says_where_the_cache_is() {
    let folder = |value: &str| cache_folder(Some(value.into()));
    assert_eq!(folder("/tmp/here"), Some("/tmp/here".into()));
    assert_eq!([folder("none"), folder(""), cache_folder(None)], [None, None, None]);
}
