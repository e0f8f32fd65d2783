use std::thread;

use tempfile::TempDir;

use super::*;

const ROOMY: u64 = 1 << 20;

fn cache(limit: u64) -> (TempDir, Cache) {
    let folder = TempDir::new().expect("a temporary folder");
    let cache = Cache::new(folder.path().join("made/when/needed"), limit);
    (folder, cache)
}

fn key(text: &str) -> Key {
    Key::of(&[text.as_bytes()])
}

/// Sets the last use of an entry to `seconds` ago.
fn age(cache: &Cache, key: Key, seconds: u64) {
    set_age(&cache.path(key), seconds);
}

fn set_age(path: &Path, seconds: u64) {
    let file = File::options().append(true).open(path).expect("the file is there");
    let times = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(seconds));
    file.set_times(times).expect("times can be set");
}

#[test]
fn what_was_put_is_got_by_its_key_alone() {
    let (_folder, cache) = cache(ROOMY);
    assert_eq!(cache.get(key("a")), None);
    assert_eq!(cache.contents().unwrap(), Contents::default());
    cache.put(key("a"), b"first").unwrap();
    cache.put(key("b"), b"").unwrap();
    assert_eq!(cache.get(key("a")).as_deref(), Some(&b"first"[..]));
    assert_eq!(cache.get(key("b")).as_deref(), Some(&b""[..]));
    assert_eq!(cache.get(key("c")), None);
    cache.put(key("a"), b"second").unwrap();
    assert_eq!(cache.get(key("a")).as_deref(), Some(&b"second"[..]));
    assert_eq!(cache.contents().unwrap(), Contents { entries: 2, bytes: 2 * HEADER as u64 + 6 });
    cache.remove(key("a"));
    cache.remove(key("a"));
    assert_eq!(cache.get(key("a")), None);
}

#[test]
fn keys_say_where_parts_end() {
    assert_eq!(Key::of(&[b"ab", b"c"]), Key::of(&[b"ab", b"c"]));
    assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
    assert_ne!(Key::of(&[b"ab"]), Key::of(&[b"ab", b""]));
    // SHA-256 of the length in eight bytes, then "abc".
    assert_eq!(
        Key::of(&[b"abc"]).to_string(),
        "ce91dc5eec0139adf091900d225971d6ad246a845bad791b5693a9d0d55dd391"
    );
}

#[test]
fn a_damaged_entry_is_none_and_makes_room_for_a_new_one() {
    let (_folder, cache) = cache(ROOMY);
    let key = key("kernel");
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 7] = [
        ("empty", Vec::clear),
        ("cut within the header", |bytes| bytes.truncate(HEADER - 1)),
        ("cut within the content", |bytes| bytes.truncate(HEADER + 3)),
        ("a byte more", |bytes| bytes.push(0)),
        ("a bit of the content", |bytes| bytes[HEADER + 2] ^= 4),
        ("a bit of the hash", |bytes| bytes[MAGIC.len()] ^= 1),
        ("another format", |bytes| bytes[MAGIC.len() - 1] = b'0'),
    ];
    for (damage, apply) in damages {
        cache.put(key, b"machine code").unwrap();
        let mut bytes = fs::read(cache.path(key)).unwrap();
        apply(&mut bytes);
        fs::write(cache.path(key), bytes).unwrap();
        assert_eq!(cache.get(key), None, "{damage}");
        assert!(!cache.path(key).exists(), "{damage}: it is removed");
        cache.put(key, b"machine code").unwrap();
        assert_eq!(cache.get(key).as_deref(), Some(&b"machine code"[..]), "{damage}");
    }
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    // The limit has room for three entries of 100 bytes.
    let (_folder, cache) = cache(3 * (HEADER as u64 + 100));
    for (name, seconds) in [("a", 30), ("b", 20), ("c", 10)] {
        cache.put(key(name), &[0; 100]).unwrap();
        age(&cache, key(name), seconds);
    }
    assert!(cache.get(key("a")).is_some(), "and now it is the youngest");
    cache.put(key("d"), &[0; 100]).unwrap();
    let there = ["a", "b", "c", "d"].map(|name| cache.path(key(name)).exists());
    assert_eq!(there, [true, false, true, true]);
    // An entry that fills the whole limit evicts all others and stays.
    cache.put(key("e"), &[0; 300]).unwrap();
    let there = ["a", "c", "d", "e"].map(|name| cache.path(key(name)).exists());
    assert_eq!(there, [false, false, false, true]);
    // An entry larger than the limit is not stored and evicts no other.
    cache.put(key("f"), &[0; 3 * (HEADER + 100)]).unwrap();
    assert_eq!((cache.get(key("f")), cache.get(key("e")).is_some()), (None, true));
}

#[test]
fn files_of_others_stay_and_those_of_dead_writers_go() {
    let (_folder, cache) = cache(HEADER as u64 + 10);
    cache.put(key("a"), &[0; 10]).unwrap();
    let files = [
        (cache.folder().join("notes.bin"), 9999, true),
        (cache.folder().join("notes.tmp"), 9999, true),
        (cache.folder().join(format!("{}.xyz.tmp", key("b"))), 9999, false),
        (cache.folder().join(format!("{}.abc.tmp", key("b"))), 1, true),
    ];
    for (path, seconds, _) in &files {
        fs::write(path, [0; 1000]).unwrap();
        set_age(path, *seconds);
    }
    cache.put(key("c"), &[0; 10]).unwrap();
    for (path, seconds, stays) in files {
        assert_eq!(path.exists(), stays, "{} of {seconds} s", path.display());
    }
    assert_eq!(cache.contents().unwrap().entries, 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_no_panic() {
    let (folder, _) = cache(ROOMY);
    let file = folder.path().join("file");
    fs::write(&file, "no folder").unwrap();
    let cache = Cache::new(&file, ROOMY);
    assert!(cache.put(key("a"), b"x").is_err());
    assert_eq!(cache.get(key("a")), None);
    assert!(cache.contents().is_err());
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_look() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, cache) = cache(ROOMY);
    cache.put(key("a"), b"x").unwrap();
    let mode = fs::metadata(cache.folder()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

/// With many writers and a small limit that evicts entries all the time, readers get nothing or a complete entry.
#[test]
fn many_at_a_time_see_whole_entries() {
    let (_folder, cache) = cache(2 * (HEADER as u64 + 5000));
    let valid = |content: &[u8]| content.len() == 5000 && content.iter().all(|byte| *byte == content[0]);
    thread::scope(|scope| {
        for worker in 0..4u8 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..50u8 {
                    let key = key(["a", "b", "c"][usize::from(round) % 3]);
                    cache.put(key, &[worker.wrapping_mul(50).wrapping_add(round); 5000]).unwrap();
                    if let Some(content) = cache.get(key) {
                        assert!(valid(&content));
                    }
                }
            });
        }
    });
    let contents = cache.contents().unwrap();
    assert!(contents.entries <= 2, "{contents:?}");
    assert!(cache.files(UNFINISHED).unwrap().is_empty());
}
