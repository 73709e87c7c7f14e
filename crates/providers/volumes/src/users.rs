//! Who has files open in a volume: what to stop before it can be unmounted.

use std::fs;
use std::path::Path;

use crate::mounts::UnmountError;

/// Processes that work in a directory or have files open below it, as far as we may see: pid and name.
pub fn of(point: &Path) -> Vec<(u32, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(point));
        let fixed = ["cwd", "root", "exe"].iter().any(|link| below(&entry.path().join(link)));
        let open = || fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten().any(|fd| below(&fd.path()));
        if fixed || open() {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            all.push((pid, name.trim().to_owned()));
        }
    }
    all
}

/// What keeps a volume mounted, with who to stop.
pub fn said(error: &UnmountError, point: &Path) -> String {
    let users = of(point);
    let shown: Vec<String> = users.iter().take(3).map(|(pid, name)| format!("{name} (pid {pid})")).collect();
    match (shown.is_empty(), users.len().saturating_sub(3)) {
        (true, _) => error.to_string(),
        (false, 0) => format!("{error}: {}", shown.join(", ")),
        (false, more) => format!("{error}: {} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_have_users() {
        let directory = tempfile::tempdir().expect("is made");
        let point = directory.path().canonicalize().expect("is there");
        assert!(of(&point).is_empty());
        let _open = fs::File::create(point.join("file")).expect("is made");
        let users = of(&point);
        assert!(users.iter().any(|(pid, _)| *pid == std::process::id()), "{users:?}");
        let text = said(&UnmountError::Busy(point.clone()), &point);
        assert!(text.contains(&std::process::id().to_string()), "{text}");
    }
}
