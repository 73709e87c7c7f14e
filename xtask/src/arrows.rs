//! The arrows between the crates, checked. Arrows point down only.
//!
//! What a crate may know is written here. A new crate fails the test until its place is decided.
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::repository;

const PURE: &[&str] = &["machinery", "kinds", "cel", "claims"];

/// The crates of this workspace that a crate may use, by directory. `*` is all of them.
fn may_use(krate: &str) -> Option<&'static [&'static str]> {
    Some(match krate {
        "machinery" | "store" => &[],
        "cel" => &["machinery"],
        "kinds" => &["machinery", "cel"],
        "claims" => &["machinery", "cel"],
        "apiserver" => &["machinery", "kinds", "cel", "store"],
        "managers" | "node" => PURE,
        "providers/local" => PURE,
        provider if provider.starts_with("providers/") => &["machinery", "kinds", "cel", "claims", "providers/local"],
        "conductor" | "testkit" | "xtask" => &["*"],
        _ => return None,
    })
}

/// Those that may use what starts with `prefix`; nobody else may.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("hyper", &["apiserver", "testkit", "xtask"], "only apiserver serves HTTP"),
    ("axum", &["apiserver", "testkit", "xtask"], "only apiserver serves HTTP"),
];

/// What must not be below a pure crate, however deep.
const IMPURE: &[&str] =
    &["tokio", "mio", "socket2", "hyper", "h2", "reqwest", "kube", "kube-client", "rustls", "async-std", "smol"];

/// What a pure crate must not name itself: the features that bring a clock or randomness. `default` stands for the
/// default features, `*` for the crate in any form.
const IMPURE_FEATURES: &[(&str, &[&str])] = &[
    ("jiff", &["std", "default"]),
    ("chrono", &["clock", "now", "default"]),
    ("time", &["std", "local-offset", "default"]),
    ("uuid", &["v1", "v4", "v7"]),
    ("rand", &["*"]),
    ("getrandom", &["*"]),
    ("fastrand", &["*"]),
    ("tempfile", &["*"]),
];

/// What the sources of a pure crate must not say outside their tests.
const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "RandomState",
];

/// All arrows that should not be there, one sentence each.
fn wrong_arrows(metadata: &Value) -> Vec<String> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let mut wrong = Vec::new();
    for package in members(metadata) {
        let Some(krate) = place(root, package["manifest_path"].as_str().and_then(|p| p.strip_suffix("/Cargo.toml")))
        else {
            continue;
        };
        let Some(allowed) = may_use(krate) else {
            wrong.push(format!("{krate} is new: say in xtask/src/arrows.rs what it may use"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let name = dependency["name"].as_str().unwrap_or_default();
            let dev = dependency["kind"] == "dev";
            if let Some(target) = place(root, dependency["path"].as_str()) {
                let fine = match target {
                    _ if target == krate => dev,
                    "xtask" => false,
                    "testkit" => dev || krate == "xtask",
                    _ => dev || allowed.contains(&"*") || allowed.contains(&target),
                };
                if !fine {
                    wrong.push(format!("{krate} must not depend on {target}"));
                }
            }
            if dev {
                continue;
            }
            for (prefix, users, why) in RESERVED {
                if name.starts_with(prefix) && !users.contains(&krate) {
                    wrong.push(format!("{krate} must not depend on {name}: {why}"));
                }
            }
            if PURE.contains(&krate) {
                wrong.extend(impure_feature(krate, dependency));
            }
        }
        if PURE.contains(&krate) {
            for name in below(metadata, package["id"].as_str().unwrap_or_default()) {
                if IMPURE.contains(&name) {
                    wrong.push(format!("{krate} is pure and must not depend on {name}, not even through others"));
                }
            }
        }
    }
    wrong
}

fn impure_feature(krate: &str, dependency: &Value) -> Option<String> {
    let (name, impure) = IMPURE_FEATURES.iter().find(|(name, _)| dependency["name"] == *name)?;
    let mut features: Vec<&str> = list(&dependency["features"]).iter().filter_map(Value::as_str).collect();
    features.push("*");
    if dependency["uses_default_features"] == true {
        features.push("default");
    }
    let found = features.into_iter().find(|feature| impure.contains(feature))?;
    Some(format!("{krate} is pure and must not depend on {name} with feature {found}: no clock, no randomness"))
}

/// A crate's directory: `machinery`, `providers/volumes`, `xtask`.
fn place<'a>(root: &str, dir: Option<&'a str>) -> Option<&'a str> {
    let dir = dir?.strip_prefix(root)?.trim_start_matches('/');
    Some(dir.strip_prefix("crates/").unwrap_or(dir))
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ids = list(&metadata["workspace_members"]);
    list(&metadata["packages"]).iter().filter(|package| ids.contains(&package["id"]))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The names of all packages that `id` is built from.
fn below<'a>(metadata: &'a Value, id: &'a str) -> BTreeSet<&'a str> {
    let nodes = list(&metadata["resolve"]["nodes"]);
    let (mut seen, mut rest) = (BTreeSet::from([id]), vec![id]);
    while let Some(id) = rest.pop() {
        let Some(node) = nodes.iter().find(|node| node["id"] == id) else { continue };
        for dependency in list(&node["deps"]) {
            let built = list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
            if let Some(id) = dependency["pkg"].as_str().filter(|id| built && seen.insert(id)) {
                rest.push(id);
            }
        }
    }
    let packages = list(&metadata["packages"]).iter();
    packages
        .filter(|package| package["id"].as_str().is_some_and(|id| seen.contains(id)))
        .filter_map(|package| package["name"].as_str())
        .collect()
}

/// The impure words in a source file, up to its unit tests.
fn impure_words(source: &str) -> Vec<String> {
    source
        .lines()
        .enumerate()
        .take_while(|(_, line)| !line.contains("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(at, line)| {
            let found = IMPURE_WORDS.iter().filter(move |word| line.contains(*word));
            found.map(move |word| format!("line {} says {word}", at + 1))
        })
        .collect()
}

fn check_sources(dir: &Path, wrong: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !tests {
            check_sources(&path, wrong);
        } else if path.extension().is_some_and(|e| e == "rs") && !tests {
            let source = fs::read_to_string(&path).unwrap_or_default();
            wrong.extend(impure_words(&source).into_iter().map(|word| format!("{}: {word}", path.display())));
        }
    }
}

#[test]
fn arrows_point_down_only() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(repository::root())
        .args(["metadata", "--format-version=1", "--all-features"])
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    assert!(members(&metadata).count() > PURE.len(), "the workspace was not found");
    let wrong = wrong_arrows(&metadata);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_crates_touch_neither_world_nor_clock() {
    let mut wrong = Vec::new();
    for krate in PURE {
        check_sources(&repository::root().join("crates").join(krate).join("src"), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn impure_words_are_found_outside_of_tests() {
    let check = |source: &str, expected: &[&str]| assert_eq!(impure_words(source), expected, "{source}");
    check("use std::collections::BTreeMap;", &[]);
    check("// SystemTime is not for us", &[]);
    check("fn f() {}\nlet now = SystemTime::now();", &["line 2 says SystemTime"]);
    check("#[cfg(test)]\nmod tests { use std::fs; }", &[]);
}

/// A workspace of one member at `at` with one dependency, which itself brings `tokio` if `brings_tokio`.
fn workspace(at: &str, dependency: Value, brings_tokio: bool) -> Value {
    let kind = dependency["kind"].clone();
    let edge = |to: &str| serde_json::json!({"pkg": to, "dep_kinds": [{"kind": kind}]});
    serde_json::json!({
        "workspace_root": "/w",
        "workspace_members": ["member"],
        "packages": [
            {"id": "member", "name": "m", "manifest_path": format!("/w/{at}/Cargo.toml"), "dependencies": [dependency]},
            {"id": "d", "name": dependency["name"]},
            {"id": "t", "name": "tokio"},
        ],
        "resolve": {"nodes": [
            {"id": "member", "deps": [edge("d")]},
            {"id": "d", "deps": if brings_tokio { vec![serde_json::json!({"pkg": "t", "dep_kinds": [{"kind": null}]})] } else { vec![] }},
        ]},
    })
}

#[test]
fn wrong_arrows_are_found() {
    use serde_json::json;
    let check = |at: &str, dependency: Value, brings_tokio: bool, expected: usize| {
        let wrong = wrong_arrows(&workspace(at, dependency.clone(), brings_tokio));
        assert_eq!(wrong.len(), expected, "{at} -> {dependency}: {wrong:?}");
    };
    let krate = |name: &str| json!({"name": name, "path": format!("/w/crates/{name}"), "kind": null});
    check("crates/claims", krate("machinery"), false, 0);
    check("crates/machinery", krate("claims"), false, 1);
    check("crates/store", krate("machinery"), false, 1);
    check("crates/managers", krate("store"), false, 1);
    check("crates/providers/volumes", krate("apiserver"), false, 1);
    check("crates/providers/volumes", krate("providers/local"), false, 0);
    check("crates/providers/local", krate("providers/volumes"), false, 1);
    check("crates/conductor", krate("store"), false, 0);
    check("crates/conductor", krate("testkit"), false, 1);
    check("crates/managers", json!({"name": "testkit", "path": "/w/crates/testkit", "kind": "dev"}), false, 0);
    check("xtask", krate("testkit"), false, 0);
    check("crates/brandnew", krate("machinery"), false, 1);
    let foreign = |name: &str, features: &[&str]| json!({"name": name, "kind": null, "features": features, "uses_default_features": false});
    check("crates/cel", foreign("anything", &[]), false, 0);
    check("crates/cel", foreign("anything", &[]), true, 1);
    check("crates/store", foreign("anything", &[]), true, 0);
    check("crates/claims", foreign("jiff", &["alloc"]), false, 0);
    check("crates/claims", foreign("jiff", &["std"]), false, 1);
    check("crates/claims", foreign("rand", &[]), false, 1);
    check("crates/managers", foreign("hyper-util", &[]), false, 1);
    check("crates/apiserver", foreign("hyper-util", &[]), false, 0);
}
