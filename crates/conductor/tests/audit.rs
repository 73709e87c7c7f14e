//! `conductor audit` and the audit log of the real binary.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Conductor, block_on};
use serde_json::Value;

/// What a command of the binary says, and whether it ended well.
fn run(kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    let done = command.args(arguments).env("KUBECONFIG", kubeconfig).output().expect("runs");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    (done.status.success(), said)
}

/// A directory with one for data, which servers, that run as users of their own, get to.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("is made");
    for path in [directory.path(), &data] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("may");
    }
    directory
}

fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).expect("an audit log");
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
}

/// The files of an audit log, those that were put aside first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(directory).expect("is there").map(|file| file.expect("is there").path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|own| own == "log")).collect();
    all.sort_by_key(|path| (path.ends_with("audit.log"), path.clone()));
    all
}

/// Providers are told of an audit; whoever has nothing to do asks for nothing.
#[test]
fn providers_wait_to_be_asked() {
    let directory = directory();
    let log = directory.path().join("audit.log");
    let data = directory.path().join("data");
    let conductor = Conductor::start(&data, &["--audit-log-file", log.to_str().expect("is text")]);
    let kubeconfig = data.join("kubeconfig");
    for _ in 0..2 {
        let (well, said) = run(&kubeconfig, &["audit"]);
        assert!(well && said.contains("everything is as it must be"), "{said}");
    }
    let own = |event: &&Value| {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        user.starts_with("system:serviceaccount:conductor-system:provider-")
            && event["objectRef"]["resource"] == "providers"
    };
    let events = events(&log);
    let verbs: Vec<&str> = events.iter().filter(own).filter_map(|event| event["verb"].as_str()).collect();
    assert!(!verbs.contains(&"get"), "{verbs:?}");
    assert!(verbs.contains(&"watch") && verbs.contains(&"patch"), "{verbs:?}");
    drop(conductor);
}

#[test]
fn a_full_audit_log_is_put_aside() {
    let directory = directory();
    let logs = directory.path().join("logs");
    std::fs::create_dir(&logs).expect("is made");
    let log = logs.join("audit.log").display().to_string();
    let bounds = ["--audit-log-file", &log, "--audit-log-maxsize", "1", "--audit-log-maxbackup", "2"];
    let conductor = Conductor::start(&directory.path().join("data"), &bounds);
    let long = "x".repeat(8000);
    block_on(async {
        let mut connection = conductor.endpoint.connect().await.expect("connects");
        for at in 0..700 {
            let path = format!("/api/v1/namespaces/default/configmaps?limit={at}&{long}");
            assert_eq!(connection.request("GET", &path, None).await.expect("is answered").code, 200);
        }
    });
    drop(conductor);
    let files = files(&logs);
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        assert!(file.metadata().expect("is there").len() <= 1 << 20, "{file:?}");
        assert!(!events(file).is_empty(), "{file:?}");
    }
}

/// What is not somebody's to see is said and skipped; the rest is checked.
#[test]
fn each_party_audits_what_is_theirs() {
    let directory = directory();
    let data = directory.path().join("data");
    let conductor = Conductor::start(&data, &[]);
    let admin = data.join("kubeconfig");
    let people = [
        ("ina", &["--role", "infrastructure-admin"][..]),
        ("claus", &["--role", "cluster-admin"]),
        ("jane", &["--role", "user", "-n", "shop"]),
    ];
    let [ina, claus, jane] = people.map(|(name, role)| {
        let file = directory.path().join(name);
        let to = ["-o", file.to_str().expect("is text"), "--data-dir", data.to_str().expect("is text")];
        let (well, said) = run(&admin, &[&["user", "add", name], role, &to].concat());
        assert!(well, "{said}");
        file
    });
    let outside = "what is outside";
    for (who, sees, does_not) in [
        (&admin, &[][..], &[][..]),
        (&ina, &[outside, " PersistentVolume,"], &["PersistentVolumeClaim", "RelationalDatabase,"]),
        (&claus, &[" PersistentVolumeClaim", " RelationalDatabase"], &[outside, "DirectoryVolume"]),
        (&jane, &[], &[outside, " PersistentVolume,", "PersistentVolumeClaim", "RelationalDatabase,"]),
    ] {
        let (well, said) = run(who, &["audit"]);
        let end =
            if does_not.is_empty() { "everything is as it must be" } else { "what is yours to see is as it must be" };
        assert!(well && said.lines().last().is_some_and(|last| last.contains(end)), "{who:?}: {said}");
        assert!(sees.iter().all(|word| !said.contains(word)), "{who:?}: {said}");
        assert!(does_not.iter().all(|word| said.contains(word)), "{who:?}: {said}");
    }

    // Something of nobody's lies in the provider's directory: whoever may ask providers is told.
    std::fs::create_dir_all(data.join("providers/volumes/directories/of-nobody")).expect("is made");
    for (who, told) in [(&admin, true), (&ina, true), (&claus, false), (&jane, false)] {
        let (well, said) = run(who, &["audit"]);
        assert_eq!((well, said.contains("directory-has-volume")), (!told, told), "{who:?}: {said}");
    }
    drop(conductor);
}
