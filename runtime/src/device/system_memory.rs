//! Memory of the host that this process may use, on Linux: what is available, within the limits of control groups.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemMemory {
    /// Installed memory, or the lowest limit of the process's control groups.
    pub total: u64,
    /// Memory that can be used without swapping, and without exceeding a limit.
    pub available: u64,
}

impl SystemMemory {
    /// Reads the memory of this process's host; `None` where the kernel does not report it.
    pub fn read() -> Option<SystemMemory> {
        SystemMemory::read_below(Path::new("/"))
    }

    /// Reads the files below `root`.
    fn read_below(root: &Path) -> Option<SystemMemory> {
        let meminfo = read_to_string(root.join("proc/meminfo")).ok()?;
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let total = field("MemTotal")?;
        let mut memory = SystemMemory { total, available: field("MemAvailable").unwrap_or(total) };
        for group in control_groups(root) {
            if let Some(limit) = group.limit() {
                memory.total = memory.total.min(limit);
                memory.available = memory.available.min(limit.saturating_sub(group.used()));
            }
        }
        Some(memory)
    }
}

/// Files of a control group's memory controller.
struct ControlGroup {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` with the page cache, which the kernel frees before it exceeds the limit.
    cache: [&'static str; 2],
}

impl ControlGroup {
    /// The limit in bytes; `None` without one.
    fn limit(&self) -> Option<u64> {
        read_to_string(self.folder.join(self.limit)).ok()?.trim().parse().ok()
    }

    /// Bytes in use that cannot be freed.
    fn used(&self) -> u64 {
        let read = |name: &str| read_to_string(self.folder.join(name)).unwrap_or_default();
        let usage: u64 = read(self.usage).trim().parse().unwrap_or(0);
        let stat = read("memory.stat");
        let fields = stat.lines().filter_map(|line| line.split_once(' '));
        let cache: u64 = fields
            .filter(|(name, _)| self.cache.contains(name))
            .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
            .sum();
        usage.saturating_sub(cache)
    }
}

/// The process's control groups and all groups above them, of versions 1 and 2.
fn control_groups(root: &Path) -> Vec<ControlGroup> {
    let mut groups = Vec::new();
    let lines = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // Each line is `hierarchy:controllers:path`; version 2 has no controllers.
    for line in lines.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let version2 = controllers.is_empty();
        if !version2 && !controllers.split(',').any(|controller| controller == "memory") {
            continue;
        }
        let mount = root.join(if version2 { "sys/fs/cgroup" } else { "sys/fs/cgroup/memory" });
        // In a container the path may be the host's; its own group is then at the mount.
        for ancestor in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = mount.join(ancestor);
            groups.push(if version2 {
                let cache = ["inactive_file", "active_file"];
                ControlGroup { folder, limit: "memory.max", usage: "memory.current", cache }
            } else {
                let cache = ["total_inactive_file", "total_active_file"];
                ControlGroup { folder, limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache }
            });
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Memory by files of these contents, on a machine of 16 GiB of which 8 are available.
    fn memory(files: &[(&str, &str)]) -> (u64, u64) {
        let root = tempfile::tempdir().unwrap();
        let meminfo = format!("MemTotal: {} kB\nMemFree: 5 kB\nMemAvailable: {} kB\n", 16 << 20, 8 << 20);
        for (path, text) in [("proc/meminfo", meminfo.as_str())].iter().chain(files) {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let memory = SystemMemory::read_below(root.path()).unwrap();
        (memory.total, memory.available)
    }

    #[test]
    fn limits_of_control_groups_bound_the_memory() {
        assert_eq!(memory(&[]), (16 * GIB, 8 * GIB));
        let own = ("proc/self/cgroup", "0::/user.slice/run-1.scope\n");
        let group = |folder: &str, limit: &str, usage: u64| {
            [
                (format!("{folder}/memory.max"), limit.to_owned()),
                (format!("{folder}/memory.current"), usage.to_string()),
            ]
        };
        for (groups, expected) in [
            (vec![group("sys/fs/cgroup/user.slice/run-1.scope", "max\n", 5)], (16 * GIB, 8 * GIB)),
            (vec![group("sys/fs/cgroup/user.slice/run-1.scope", "4294967296\n", GIB)], (4 * GIB, 3 * GIB)),
            // The group above has a lower limit.
            (
                vec![
                    group("sys/fs/cgroup/user.slice/run-1.scope", "4294967296\n", GIB),
                    group("sys/fs/cgroup/user.slice", "2147483648\n", 2 * GIB),
                ],
                (2 * GIB, 0),
            ),
            // A container sees its own group as the root.
            (vec![group("sys/fs/cgroup", "1073741824\n", GIB / 2)], (GIB, GIB / 2)),
        ] {
            let files: Vec<(&str, &str)> = groups
                .iter()
                .flatten()
                .map(|(path, text)| (path.as_str(), text.as_str()))
                .chain([own])
                .collect();
            assert_eq!(memory(&files), expected, "{files:?}");
        }
    }

    #[test]
    fn page_cache_can_be_freed() {
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/memory.current", "4294967296\n"),
            ("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 1073741824\n"),
        ];
        assert_eq!(memory(&files), (4 * GIB, 2 * GIB));
    }

    #[test]
    fn version_1_is_read() {
        let files = [
            ("proc/self/cgroup", "12:cpu,cpuacct:/docker/1\n9:memory:/docker/1\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "cache 7\ntotal_inactive_file 536870912\n"),
        ];
        assert_eq!(memory(&files), (3 * GIB, 2 * GIB + GIB / 2));
    }
}
