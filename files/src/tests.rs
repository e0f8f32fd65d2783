//! Tests, with faults on purpose.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::faults::{Faults, inject};
use crate::*;

/// Every file, link and folder below `folder` with its content.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let content = if entry.file_type().unwrap().is_symlink() {
                format!("-> {}", path.read_link().unwrap().display())
            } else if path.is_dir() {
                folders.push(path);
                "folder".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            all.insert(name, content);
        }
    }
    all
}

fn of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|&(name, content)| (name.to_owned(), content.to_owned())).collect()
}

fn message<T>(outcome: Result<T, FileError>, folder: &TempDir) -> String {
    let error = outcome.err().expect("it failed");
    error.to_string().replace(folder.path().to_str().unwrap(), "DIR")
}

#[test]
fn a_file_appears_when_it_is_complete() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let mut file = OutputFile::create(&target, Replace::Never).unwrap();
    file.write_all(b"lost").unwrap();
    let name = file.temporary_path().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("bespoke-") && name.ends_with(".partial"), "{name}");
    drop(file);
    assert!(tree(folder.path()).is_empty());

    let file = OutputFile::create(&target, Replace::Never).unwrap();
    file.write_whole(b"content").unwrap();
    assert_eq!(tree(folder.path()), of(&[("file", "content")]));
    let again = OutputFile::create(&target, Replace::Never);
    assert_eq!(message(again, &folder), "DIR/file already exists");
    OutputFile::create(&target, Replace::Allowed).unwrap().write_whole(b"other").unwrap();
    assert_eq!(tree(folder.path()), of(&[("file", "other")]));
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        assert_eq!(target.metadata().unwrap().mode(), plain.metadata().unwrap().mode());
    }
}

#[test]
fn an_unwritable_path_fails_at_once() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    for (path, expected) in [
        (folder.path().to_owned(), "cannot write DIR: it exists and is not a regular file"),
        (folder.path().join("no/file"), "cannot write DIR/no/file: the folder DIR/no does not exist"),
        (folder.path().join("no").join(".."), "cannot write DIR/no/..: "),
    ] {
        let error = message(OutputFile::create(&path, Replace::Allowed), &folder);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn two_writers_of_one_name_do_not_mix() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("file");
    let create = |replace| OutputFile::create(&target, replace).unwrap();
    let (mut first, mut second) = (create(Replace::Never), create(Replace::Never));
    first.write_all(b"first").unwrap();
    second.write_all(b"second").unwrap();
    first.finish().unwrap();
    assert_eq!(message(second.finish(), &folder), "DIR/file already exists");
    assert_eq!(tree(folder.path()), of(&[("file", "first")]));
}

#[test]
#[cfg(unix)]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("mine"), "mine").unwrap();
    symlink("mine", at("link")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    for name in ["link", "dangling"] {
        let error = message(OutputFile::create(&at(name), Replace::Never), &folder);
        assert_eq!(error, format!("DIR/{name} already exists"));
        OutputFile::create(&at(name), Replace::Allowed).unwrap().write_whole(b"new").unwrap();
    }
    assert_eq!(tree(folder.path()), of(&[("mine", "mine"), ("link", "new"), ("dangling", "new")]));
    // A link that appears during the work.
    let file = OutputFile::create(&at("late"), Replace::Never).unwrap();
    symlink("nothing", at("late")).unwrap();
    assert_eq!(message(file.write_whole(b""), &folder), "DIR/late already exists");

    // A link in place of a folder.
    let out = at("out");
    fs::create_dir_all(at("elsewhere")).unwrap();
    fs::create_dir(&out).unwrap();
    symlink("../elsewhere", out.join("sm_90")).unwrap();
    let written = OutputFolder::create(&out, Replace::Allowed).unwrap();
    written.write(Path::new("sm_90/k.ptx"), b"").unwrap();
    let error = message(written.finish(&[]), &folder);
    assert_eq!(error, "cannot write DIR/out/sm_90: it exists and is not a folder");
    assert_eq!(tree(&at("elsewhere")), of(&[]));
    assert_eq!(tree(&out), of(&[("sm_90", "-> ../elsewhere")]));
}

/// What is in the folder of [`write_folder`] before and after.
const BEFORE: [(&str, &str); 5] =
    [("inner", "folder"), ("inner/mine", "kept"), ("inner/old", "old"), ("notes", "mine"), ("one", "old")];
const AFTER: [(&str, &str); 6] = [
    ("inner", "folder"),
    ("inner/mine", "kept"),
    ("inner/two", "new"),
    ("notes", "mine"),
    ("one", "new"),
    ("top", "folder"),
];

fn prepared() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("inner")).unwrap();
    for (name, content) in BEFORE.iter().filter(|(_, content)| *content != "folder") {
        fs::write(out.join(name), content).unwrap();
    }
    (folder, out)
}

fn write_folder(out: &Path, replace: Replace) -> Result<(), FileError> {
    let folder = OutputFolder::create(out, replace)?;
    for file in ["one", "inner/two", "top/three"] {
        folder.write(Path::new(file), b"new")?;
    }
    folder.finish(&["inner/old".into(), "gone/missing".into()])
}

#[test]
fn a_folder_s_files_appear_together() {
    let _faults = inject(Faults::default());
    let (folder, out) = prepared();
    assert_eq!(message(write_folder(&out, Replace::Never), &folder), "DIR/out/one already exists");
    assert_eq!(tree(&out), of(&BEFORE));
    write_folder(&out, Replace::Allowed).unwrap();
    let mut after = of(&AFTER);
    after.insert("top/three".into(), "new".into());
    assert_eq!(tree(&out), after);

    // Folders that were created for it go with it.
    let deep = folder.path().join("a/b/c");
    let given_up = OutputFolder::create(&deep, Replace::Never).unwrap();
    given_up.write(Path::new("file"), b"").unwrap();
    for outside in ["../x", "/x", "a/../../x", "."] {
        assert!(given_up.write(Path::new(outside), b"").is_err(), "{outside}");
    }
    drop(given_up);
    assert!(!folder.path().join("a").exists());
    let error = message(OutputFolder::create(&out.join("one"), Replace::Allowed), &folder);
    assert_eq!(error, "cannot write DIR/out/one: it exists and is not a folder");
}

/// Every kind of fault with its n-th occurrence.
fn faults(n: u64) -> [Faults; 4] {
    let none = Faults::default();
    [
        Faults { create: Some(n), ..none },
        Faults { sync: Some(n), ..none },
        Faults { rename: Some(n), ..none },
        Faults { space: Some(n - 1), ..none },
    ]
}

#[test]
fn after_any_fault_all_is_as_before() {
    let mut failed = [0; 4];
    for n in 1..=10 {
        for (kind, faults) in faults(n).into_iter().enumerate() {
            let (folder, out) = prepared();
            let guard = inject(faults);
            let file = folder.path().join("file");
            let write = || OutputFile::create(&file, Replace::Allowed)?.write_whole(b"a few bytes");
            let (outcome, deep) = (write_folder(&out, Replace::Allowed), folder.path().join("deep/er"));
            let new = outcome.as_ref().map_or(Ok(()), |()| write_folder(&deep, Replace::Never));
            let single = new.as_ref().map_or(Ok(()), |()| write());
            drop(guard);
            failed[kind] += usize::from(outcome.is_err() || new.is_err() || single.is_err());
            match outcome {
                Err(error) => {
                    assert!(error.to_string().starts_with("cannot write "), "{faults:?}: {error}");
                    assert_eq!(tree(&out), of(&BEFORE), "{faults:?}");
                }
                Ok(()) => assert!(out.join("top/three").exists(), "{faults:?}"),
            }
            assert_eq!(folder.path().join("deep").exists(), new.is_ok() && deep.exists(), "{faults:?}");
            assert!(single.is_ok() || !file.exists(), "{faults:?}");
            let left = tree(folder.path()).into_keys().find(|name| name.contains(".partial"));
            assert_eq!(left, None, "{faults:?}");
        }
    }
    // Creations, syncs and renames of the two folders and the file, and their bytes.
    assert_eq!(failed, [9, 7, 9, 10]);
}

#[test]
fn short_writes_lose_nothing() {
    let _faults = inject(Faults { short: Some(3), ..Faults::default() });
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    OutputFile::create(&file, Replace::Never).unwrap().write_whole(b"more than three bytes").unwrap();
    let files = OutputFolder::create(&out, Replace::Never).unwrap();
    files.write(Path::new("a"), b"more than three bytes").unwrap();
    files.finish(&[]).unwrap();
    for path in [file, out.join("a")] {
        assert_eq!(fs::read(path).unwrap(), b"more than three bytes");
    }
}

#[test]
fn scratch_folders_are_removed() {
    let _faults = inject(Faults::default());
    let scratch = Scratch::create().unwrap();
    let path = scratch.path().to_owned();
    fs::write(path.join("input"), "").unwrap();
    drop(scratch);
    assert!(!path.exists());
}

#[test]
fn a_file_of_lines_is_continued_after_its_last_whole_line() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let (mut file, lines) = LineFile::open(&path).unwrap();
    assert!(lines.is_empty());
    file.append("one").unwrap();
    drop(file);
    fs::write(&path, "one\ntwo\nthr").unwrap();
    let (mut file, lines) = LineFile::open(&path).unwrap();
    assert_eq!(lines, ["one", "two"]);
    file.append("three").unwrap();
    assert_eq!(tree(folder.path()), of(&[("lines", "one\ntwo\nthree\n")]));
    file.remove().unwrap();
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn a_line_that_does_not_fit_on_the_disk_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    {
        let _faults = inject(Faults { space: Some(6), short: Some(2), ..Faults::default() });
        let (mut file, _) = LineFile::open(&path).unwrap();
        file.append("one").unwrap();
        let failed = message(file.append("two"), &folder);
        assert!(failed.starts_with("cannot write DIR/lines: "), "{failed}");
    }
    let _faults = inject(Faults::default());
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw");
    let (_, lines) = LineFile::open(&path).unwrap();
    assert_eq!(lines, ["one"]);
}

#[cfg(unix)]
#[test]
fn a_file_of_lines_has_one_writer() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let (mut first, _) = LineFile::open(&path).unwrap();
    assert_eq!(message(LineFile::open(&path), &folder), "another process is writing DIR/lines");
    first.append("one").unwrap();
    drop(first);
    let (second, lines) = LineFile::open(&path).unwrap();
    assert_eq!(lines, ["one"]);
    second.remove().unwrap();
    // Without lines, nothing stays.
    drop(LineFile::open(&path).unwrap());
    assert!(tree(folder.path()).is_empty());
}

#[test]
fn only_a_regular_file_of_text_is_a_file_of_lines() {
    let _faults = inject(Faults::default());
    let folder = tempfile::tempdir().unwrap();
    assert!(message(LineFile::open(folder.path()), &folder).ends_with("it exists and is not a regular file"));
    let path = folder.path().join("lines");
    fs::write(&path, b"\xff\n").unwrap();
    assert!(message(LineFile::open(&path), &folder).contains("utf-8"));
}
