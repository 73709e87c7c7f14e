//! `conductor up` as a command: what it writes, how it ends, what it refuses.

mod common;

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{Conductor, JSON, block_on, command};
use conductor_testkit::wire::Endpoint;
use rustix::process::Signal;
use serde_json::{Value, json};

/// What a command that is to fail says.
fn refused(data: &Path, arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = command(data, arguments).output().expect("runs");
    let said = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "it should have refused: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("is there").permissions().mode() & 0o777
}

#[test]
fn secrets_are_for_their_owner_only_and_survive_a_restart() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let kubeconfig = directory.path().join("elsewhere");
    let conductor = Conductor::start(&data, &["--kubeconfig", kubeconfig.to_str().expect("is text")]);
    assert!(!conductor.endpoint.address.to_string().ends_with(":0"), "port 0 became a real one");
    assert_eq!(mode(&kubeconfig), 0o600);
    let pki: Vec<_> =
        fs::read_dir(data.join("pki")).expect("is there").map(|file| file.expect("is there").path()).collect();
    assert!(pki.len() >= 3, "{pki:?}");
    for file in pki {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    let before = fs::read_to_string(&kubeconfig).expect("is there");
    let token = block_on(async {
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
        let answer = conductor.endpoint.request("POST", path, Some((JSON, body.as_bytes()))).await.expect("answers");
        assert_eq!(answer.code, 201, "{}", answer.json());
        answer.json()["status"]["token"].as_str().expect("a token").to_owned()
    });
    let (status, _) = conductor.stop(Signal::TERM);
    assert!(status.success(), "{status}");

    // The old kubeconfig is good for the new server, only the port is another.
    let port = |text: &str| {
        text.lines().find(|line| line.trim().starts_with("server:")).map(str::to_owned).expect("has a server")
    };
    let conductor = Conductor::start(&data, &["--kubeconfig", kubeconfig.to_str().expect("is text")]);
    let after = fs::read_to_string(&kubeconfig).expect("is there");
    let old = directory.path().join("old");
    fs::write(&old, before.replace(&port(&before), &port(&after))).expect("is written");
    let old = Endpoint::from_kubeconfig(&old).expect("can be used");
    block_on(async {
        assert_eq!(old.request("GET", "/api/v1/namespaces", None).await.expect("answers").code, 200);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})
            .to_string();
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer =
            conductor.endpoint.request("POST", path, Some((JSON, review.as_bytes()))).await.expect("answers").json();
        assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:default:default", "{answer}");
        let own = conductor.endpoint.with_token(&token).request("GET", "/version", None).await.expect("answers");
        assert_eq!(own.code, 200);
    });
}

#[test]
fn it_ends_in_time_also_with_watches_open() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    for signal in [Signal::TERM, Signal::INT] {
        let conductor = Conductor::start(&data, &[]);
        block_on(async {
            let mut watches = Vec::new();
            for _ in 0..20 {
                let connection = conductor.endpoint.connect().await.expect("connects");
                let watch = connection.watch("/api/v1/configmaps?watch=1").await.expect("watches");
                assert_eq!(watch.code, 200);
                watches.push(watch);
            }
            // Connections that say nothing, before and after the handshake.
            let _silent = tokio::net::TcpStream::connect(conductor.endpoint.address).await.expect("connects");
            let _idle = conductor.endpoint.connect().await.expect("connects");
            let stopped = tokio::task::spawn_blocking(move || conductor.stop(signal));
            for mut watch in watches {
                while watch.line().await.expect("a watch ends as it should").is_some() {}
            }
            let (status, took) = stopped.await.expect("stops");
            assert_eq!(status.code(), Some(0), "{signal:?}");
            assert!(took.as_secs() < 5, "{signal:?}: {took:?}");
        });
    }
}

#[test]
fn tokens_stand_for_users() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let file = directory.path().join("tokens.csv");
    fs::write(&file, "boss,ann,1,\"system:masters,others\"\nguest,bob,2\n").expect("is written");
    let conductor = Conductor::start(&data, &["--token-auth-file", file.to_str().expect("is text")]);
    block_on(async {
        let code =
            async |endpoint: Endpoint| endpoint.request("GET", "/api/v1/secrets", None).await.expect("answers").code;
        assert_eq!(code(conductor.endpoint.with_token("boss")).await, 200);
        assert_eq!(code(conductor.endpoint.with_token("guest")).await, 403);
        assert_eq!(code(conductor.endpoint.with_token("nobody")).await, 401);
        assert_eq!(code(conductor.endpoint.anonymous()).await, 403);
    });
    drop(conductor);
    for (text, expected) in [("a", "line 1"), ("good,ann,1\nx,y\n", "line 2"), ("\"", "line 1")] {
        fs::write(&file, text).expect("is written");
        let said = refused(&data, &["--token-auth-file", file.to_str().expect("is text")]);
        assert!(said.contains(expected), "{text:?}: {said}");
    }
    let said = refused(&data, &["--token-auth-file", "/nonexistent/tokens"]);
    assert!(said.contains("/nonexistent/tokens"), "{said}");
}

#[test]
fn a_data_directory_has_one_process() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let mut conductor = Conductor::start(&data, &[]);
    let said = refused(&data, &[]);
    assert!(said.contains("in use") && said.contains(&conductor.id().to_string()), "{said}");
    assert!(conductor.is_alive());
    // An address has one process too.
    let other = directory.path().join("other");
    let address = conductor.endpoint.address.to_string();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_conductor"))
        .args(["up", "--listen", &address, "--data-dir"])
        .arg(&other)
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&address) && said.contains("--listen"), "{said}");
    // A killed one holds nothing back.
    conductor.kill();
    let _again = Conductor::start(&data, &[]);
}

/// Every file of a directory and below, with its size.
fn files(directory: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("is there") {
        let path = entry.expect("is there").path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push((path.clone(), fs::metadata(&path).expect("is there").len())),
        }
    }
    all
}

#[test]
fn foreign_and_damaged_data_directories_are_refused() {
    let directory = tempfile::tempdir().expect("makes a directory");
    // Somebody else's files are left alone.
    let foreign = directory.path().join("foreign");
    fs::create_dir_all(foreign.join("member")).expect("is made");
    fs::write(foreign.join("member/db"), "of something else").expect("is written");
    let said = refused(&foreign, &[]);
    assert!(said.contains("member") && said.contains("choose"), "{said}");
    assert_eq!(fs::read_dir(&foreign).expect("is there").count(), 1, "nothing was added");
    let file = directory.path().join("file");
    fs::write(&file, "x").expect("is written");
    refused(&file, &[]);

    let data = directory.path().join("data");
    let conductor = Conductor::start(&data, &[]);
    block_on(async {
        for number in 0..50 {
            let object = json!({"metadata": {"name": format!("object-{number}")}, "data": {"text": "x".repeat(2000)}})
                .to_string();
            let path = "/api/v1/namespaces/default/configmaps";
            let answer =
                conductor.endpoint.request("POST", path, Some((JSON, object.as_bytes()))).await.expect("answers");
            assert_eq!(answer.code, 201);
        }
    });
    conductor.kill();
    let (log, _) = files(&data.join("store")).into_iter().max_by_key(|(_, size)| *size).expect("has files");
    let whole = fs::read(&log).expect("is there");
    let mut damaged = whole.clone();
    // In the middle of what was written, where a crash cannot have been.
    let written = whole.windows(8).rposition(|bytes| bytes == b"xxxxxxxx").expect("the objects are in it");
    damaged[written / 2] ^= 0x55;
    fs::write(&log, &damaged).expect("is written");
    let said = refused(&data, &[]);
    assert!(said.contains("corrupt") && said.contains(&*log.to_string_lossy()), "{said}");
    fs::write(&log, &whole).expect("is written");

    let authority = files(&data.join("pki")).into_iter().map(|(path, _)| path).find(|path| path.ends_with("ca.key"));
    let authority = authority.expect("has an authority");
    let key = fs::read(&authority).expect("is there");
    fs::write(&authority, "not a key").expect("is written");
    let said = refused(&data, &[]);
    assert!(said.contains("ca.key"), "{said}");
    fs::write(&authority, key).expect("is written");

    // As it was, it is fine again, with everything in it.
    let conductor = Conductor::start(&data, &[]);
    let list: Value = block_on(conductor.endpoint.request("GET", "/api/v1/namespaces/default/configmaps", None))
        .expect("answers")
        .json();
    let names = list["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|item| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("object-")));
    assert_eq!(names.count(), 50);
}

/// Two managers at once would do everything twice.
#[test]
fn a_manager_beside_it_waits() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let data = directory.path().join("data");
    let conductor = Conductor::start(&data, &[]);
    let mut manager = std::process::Command::new(env!("CARGO_BIN_EXE_conductor"))
        .args(["manager", "--no-install", "--kubeconfig"])
        .arg(data.join("kubeconfig"))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = std::io::BufReader::new(manager.stderr.take().expect("has an error output")).lines();
    let first = lines.next().expect("says something").expect("is text");
    assert!(first.starts_with("waiting to lead"), "{first}");
    block_on(async {
        let path = "/apis/coordination.k8s.io/v1/namespaces/conductor-system/leases/conductor-managers";
        // it has asked for the Lease at least once by then
        for _ in 0..30 {
            let lease = conductor.endpoint.request("GET", path, None).await.expect("answers").json();
            assert_eq!(lease["spec"]["holderIdentity"], "conductor-up", "{lease}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    manager.kill().expect("ends");
    manager.wait().expect("ends");
}

#[test]
fn what_the_managers_have_is_counted() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let conductor = Conductor::start(&directory.path().join("data"), &[]);
    let queue = |name: &str, spec: Value| {
        json!({"apiVersion": "messaging.conductor.io/v1alpha1", "kind": name, "metadata": {"name": "q"}, "spec": spec})
            .to_string()
    };
    let group = "/apis/messaging.conductor.io/v1alpha1";
    block_on(async {
        for (path, object) in [
            (format!("{group}/messagequeues"), queue("MessageQueue", json!({"protocol": "amqp"}))),
            (
                format!("{group}/namespaces/default/messagequeueclaims"),
                queue("MessageQueueClaim", json!({"class": ""})),
            ),
        ] {
            let made =
                conductor.endpoint.request("POST", &path, Some((JSON, object.as_bytes()))).await.expect("answers");
            assert_eq!(made.code, 201, "{}", made.json());
        }
        let of = r#"{type="messagequeues.messaging.conductor.io",phase="Bound"} 1"#;
        let wanted = [format!("conductor_claims{of}"), format!("conductor_resources{of}")];
        let mut said = String::new();
        for _ in 0..600 {
            let answer = conductor.endpoint.request("GET", "/metrics", None).await.expect("answers");
            said = String::from_utf8_lossy(&answer.body).into_owned();
            if wanted.iter().all(|line| said.lines().any(|said| said == line)) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        for line in wanted {
            assert!(said.lines().any(|said| said == line), "{line} is not in\n{said}");
        }
        let writes = said.lines().find_map(|line| line.strip_prefix("conductor_writes_total ")).expect("is counted");
        assert!(writes.parse::<u64>().expect("a number") >= 3, "{writes}");
    });
}
