//! What this machine or process lacks for a kind of volume, each with what to do about it.

use std::fs;
use std::path::Path;

use crate::host;
use crate::image::FileSystem;

const SYS_ADMIN: u32 = 21;
const SYS_RESOURCE: u32 = 24;

/// The capabilities in `/proc/self/status`.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn may(capability: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective(&status) & (1 << capability) != 0
}

/// The kernel grows a mounted ext4 only for those who may use reserved blocks.
pub fn may_grow_mounted_ext4() -> bool {
    may(SYS_RESOURCE)
}

/// Everything that keeps this process from making images with a file system; empty: nothing does.
pub fn for_images(file_system: FileSystem) -> Vec<String> {
    let mut lacks = Vec::new();
    if !may(SYS_ADMIN) {
        lacks.push("the privilege to mount (CAP_SYS_ADMIN): run conductor as root".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        lacks.push("loop devices (/dev/loop-control): modprobe loop".to_owned());
    }
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kernel.split_whitespace().any(|word| word == file_system.name()) && !loadable(file_system) {
        lacks.push(format!("{0} in the kernel: modprobe {0}", file_system.name()));
    }
    let programs: &[&str] = match file_system {
        FileSystem::Ext4 => &["mkfs.ext4", "resize2fs", "e2fsck"],
        FileSystem::Xfs => &["mkfs.xfs", "xfs_growfs"],
    };
    for program in ["mount", "losetup"].iter().chain(programs) {
        if host::find(program).is_none() {
            lacks.push(format!("{program}: apt-get install {}", host::package_of(program)));
        }
    }
    lacks
}

/// Whether the kernel would load the file system when it is mounted.
fn loadable(file_system: FileSystem) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
    let listed = fs::read_to_string(modules).unwrap_or_default();
    listed.contains(&format!("/{}.ko", file_system.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000200000\n";
        assert_eq!(effective(status), 1 << SYS_ADMIN);
        assert_eq!(effective(""), 0);
        assert_eq!(effective("CapEff:\tnonsense"), 0);
    }
}
