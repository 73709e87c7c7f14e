//! A really full disk under the real binary: a small tmpfs in a mount namespace of its own, which needs root.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Conductor, JSON, block_on};
use serde_json::json;

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Whether a small file system can be mounted here; said if not.
fn may_mount() -> bool {
    let probe = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let may = probe.is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: mounting a small file system needs root and unshare");
    }
    may
}

#[test]
fn a_full_disk_refuses_writes_only_and_recovers() {
    if !may_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("is made");
    let kubeconfig = directory.path().join("kubeconfig");
    let script = "mount -t tmpfs -o size=48m none \"$0\" && exec \"$1\" up --listen 127.0.0.1:0 --data-dir \"$0\" --kubeconfig \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&data).arg(env!("CARGO_BIN_EXE_conductor")).arg(&kubeconfig);
    let mut conductor = Conductor::run(&mut command, &data);
    // Only its own processes see the mount, and who looks through their eyes.
    let inside = PathBuf::from(format!("/proc/{}/root{}", conductor.id(), data.display()));
    block_on(async {
        let endpoint = conductor.endpoint.clone();
        let create = async |name: String| {
            let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(100_000)}}).to_string();
            endpoint.request("POST", PATH, Some((JSON, object.as_bytes()))).await.expect("answers")
        };
        let mut watch =
            endpoint.connect().await.expect("connects").watch(&format!("{PATH}?watch=1")).await.expect("watches");
        assert_eq!(create("before".into()).await.code, 201);
        fill(&inside.join("ballast"));
        let mut written = Vec::new();
        let full = loop {
            let name = format!("object-{}", written.len());
            let answer = create(name.clone()).await;
            match answer.code {
                201 => written.push(name),
                _ => break answer,
            }
            assert!(written.len() < 1000, "the disk does not get full");
        };
        let status = full.json();
        assert_eq!(full.code, 500, "{status}");
        assert_eq!(
            (status["kind"].as_str(), status["reason"].as_str()),
            (Some("Status"), Some("InternalError")),
            "{status}"
        );
        assert!(status["message"].as_str().is_some_and(|text| text.contains("disk")), "{status}");
        for _ in 0..3 {
            assert_eq!(create("more".into()).await.code, 500);
        }
        // What is left may be enough for something small: until nothing is.
        let ready = async |path: &str| endpoint.request("GET", path, None).await.expect("answers").code;
        let small = async |name: &str| {
            let object = json!({"metadata": {"name": name}}).to_string();
            endpoint.request("POST", PATH, Some((JSON, object.as_bytes()))).await.expect("answers").code
        };
        while ready("/readyz").await != 500 {
            let name = format!("object-{}", written.len());
            if small(&name).await == 201 {
                written.push(name);
            }
            assert!(written.len() < 3000, "the disk does not get full");
        }
        assert_eq!(ready("/livez").await, 200, "a restart would not help");
        // Reads go on, and show nothing of what was refused.
        assert_eq!(endpoint.request("GET", &format!("{PATH}/before"), None).await.expect("answers").code, 200);
        assert_eq!(endpoint.request("GET", &format!("{PATH}/more"), None).await.expect("answers").code, 404);
        let list = endpoint.request("GET", &format!("{PATH}?labelSelector=!x"), None).await.expect("answers").json();
        let count = list["items"].as_array().expect("a list").len();
        assert!((written.len() + 1..=written.len() + 2).contains(&count), "{count} of {}", written.len());

        std::fs::remove_file(inside.join("ballast")).expect("is removed");
        let started = Instant::now();
        while ready("/readyz").await != 200 {
            assert!(started.elapsed() < Duration::from_secs(20), "there is room again, but the server does not see it");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while create("more".into()).await.code != 201 {
            assert!(started.elapsed() < Duration::from_secs(20), "there is room again, but nothing is written");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for name in written.iter().chain([&"more".to_owned()]) {
            let answer = endpoint.request("GET", &format!("{PATH}/{name}"), None).await.expect("answers");
            assert_eq!(answer.code, 200, "{name} was acknowledged");
        }
        // The watcher has seen exactly these, the last of them last.
        let mut seen = Vec::new();
        while seen.last().is_none_or(|name| name != "more") {
            let line = watch.line().await.expect("goes on").expect("is not ended");
            let event: serde_json::Value = serde_json::from_slice(&line).expect("is JSON");
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if name != "kube-root-ca.crt" {
                seen.push(name);
            }
        }
        let expected: Vec<String> =
            ["before".to_owned()].into_iter().chain(written.clone()).chain(["more".to_owned()]).collect();
        assert_eq!(seen, expected);
    });
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}

/// Takes all the room there is.
fn fill(path: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("is made");
    while file.write_all(&[1; 64 * 1024]).is_ok() {}
    while file.write_all(&[1; 512]).is_ok() {}
}

#[test]
fn with_a_full_disk_what_is_there_is_served_again() {
    if !may_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("makes a directory");
    let [data, small, log] = ["data", "small", "log"].map(|name| directory.path().join(name));
    std::fs::create_dir(&data).expect("is made");
    std::fs::create_dir(&small).expect("is made");
    // What a stop leaves preallocated is cut off by the next start, which makes a little room below the data directory: so
    // the kubeconfig is on a file system of its own, where there is none. Each start has a log of its own: what an earlier one said of
    // being ready would be read before the shell has emptied it.
    let script = r#"
        up() { rm -f "$3"
            "$1" up --listen 127.0.0.1:0 --data-dir "$0/own" --kubeconfig "$2/kubeconfig" >"$3" 2>&1 & pid=$!
            until grep -qs "is ready\|^error" "$3"; do sleep 0.1; done; }
        mount -t tmpfs -o size=48m none "$0" && mount -t tmpfs -o size=64k none "$2" || exit 9
        up "$@"; kill -9 $pid; wait $pid
        for full in "$0" "$2"; do dd if=/dev/zero of="$full/ballast" bs=4k 2>/dev/null; done
        up "$@"; kill $pid; wait $pid"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&data);
    command.arg(env!("CARGO_BIN_EXE_conductor")).args([&small, &log]);
    command.output().expect("runs");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("is ready") && said.contains("kubeconfig of an earlier start stays as it is"), "{said}");
}
