//! An APIService for every version of every group that this server has itself: built-in ones are made at the start, those of
//! custom resources come and go with their definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machinery::status::Status;
use serde_json::{Value, json};
use store::EventKind;

use super::{GROUP, PATH, TABLE};
use crate::controllers::crds;
use crate::controllers::follow::{Follow, News};
use crate::local::Local;
use crate::plan::parse_stored;
use crate::server::Server;

/// Says who keeps an APIService: the server makes `onstart` ones once, and keeps `true` ones as they are.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// A group and a version.
type Version = (String, String);

/// How far in front a built-in group is: those that nobody names are as custom ones.
const PRIORITIES: &[(&str, u64)] = &[
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("admissionregistration.k8s.io", 16700),
    ("apiextensions.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("resource.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
];

/// How far in front a group of this server's own is, and a version in it.
pub fn priority(group: &str, version: &str) -> (u64, u64) {
    let Some((_, of_group)) = PRIORITIES.iter().find(|(own, _)| *own == group) else { return (1000, 100) };
    let of_version = match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    (*of_group, of_version)
}

fn object((group, version): &Version, managed: &str) -> Value {
    let (of_group, of_version) = priority(group, version);
    let mut spec = json!({"version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
    if !group.is_empty() {
        spec["group"] = group.as_str().into();
    }
    json!({"metadata": {"name": name((group, version)), "labels": {MANAGED: managed}}, "spec": spec})
}

fn name((group, version): (&str, &str)) -> String {
    format!("{version}.{group}")
}

/// Makes those of the built-in groups that are missing.
pub async fn bootstrap(server: &Server) -> Result<(), Status> {
    let local = Local::new(server, "kube-apiserver");
    let catalog = server.0.catalog();
    // The group of APIServices itself has none: it is what the others are found with.
    let own = catalog.all().iter().filter(|resource| &*resource.group != GROUP);
    let own = own.filter(|resource| !resource.is_custom() || &*resource.group == crate::transactions::GROUP);
    let versions: BTreeSet<Version> = own.map(|own| (own.group.to_string(), own.version.to_string())).collect();
    let missing =
        versions.iter().filter(|(group, version)| server.store().get(TABLE, &name((group, version))).is_none());
    let made = missing.map(|version| {
        let (local, object) = (&local, object(version, "onstart"));
        async move { local.ensure(PATH, &object).await }
    });
    futures::future::try_join_all(made).await.map(drop)
}

/// Keeps those of custom resources, for as long as the server runs.
pub async fn run(server: Server) {
    let local = Local::new(&server, "kube-apiserver");
    let mut follow = Follow::tables(server.store(), &[crds::TABLE, TABLE]);
    let mut defined: BTreeMap<String, BTreeSet<Version>> = BTreeMap::new();
    loop {
        follow.changed().await;
        follow.read_woken(&mut |table, news| {
            if &**table == crds::TABLE {
                learn(&mut defined, news);
            }
        });
        while !settle(&server, &local, &defined.values().flatten().collect()).await {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Takes in what is new about definitions.
fn learn(defined: &mut BTreeMap<String, BTreeSet<Version>>, news: News) {
    let served = |crd: &Value| -> BTreeSet<Version> {
        let group = crd["spec"]["group"].as_str().unwrap_or_default();
        let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let served = versions.iter().filter(|version| version["served"] == true);
        served.filter_map(|version| Some((group.to_owned(), version["name"].as_str()?.to_owned()))).collect()
    };
    match news {
        News::All { entries, .. } => {
            let known = entries.iter().filter_map(|entry| Some((entry, parse_stored(entry).ok()?)));
            *defined = known.map(|(entry, crd)| (entry.key.to_string(), served(&crd))).collect();
        }
        News::Events(events) => {
            for event in events {
                match parse_stored(&event.entry) {
                    Ok(crd) if event.kind == EventKind::Put => defined.insert(event.key().to_string(), served(&crd)),
                    _ => defined.remove(&**event.key()),
                };
            }
        }
    }
}

/// Makes everything as it should be; false if it must be tried again.
async fn settle(server: &Server, local: &Local, wanted: &BTreeSet<&Version>) -> bool {
    let mut well = true;
    let mut done = |result: Result<Value, Status>| {
        if let Err(status) = result {
            tracing::debug!(%status, "an APIService could not be written");
            well &= matches!(status.code, 404 | 409);
        }
    };
    for version in wanted {
        let own = object(version, "true");
        let name = name((&version.0, &version.1));
        let there = server.store().get(TABLE, &name).and_then(|entry| parse_stored(&entry).ok());
        match there {
            None => done(local.create(PATH, &own).await),
            // One that somebody else made is theirs.
            Some(there) if there["metadata"]["labels"][MANAGED] == "true" && there["spec"] != own["spec"] => {
                let mut new = there;
                new["spec"] = own["spec"].clone();
                done(local.update(&format!("{PATH}/{name}"), &new).await);
            }
            Some(_) => {}
        }
    }
    for there in super::all(server) {
        let text = |field: &str| there["spec"][field].as_str().unwrap_or_default().to_owned();
        let gone = !wanted.contains(&(text("group"), text("version")));
        if gone && there["metadata"]["labels"][MANAGED] == "true" {
            let path = format!("{PATH}/{}", there["metadata"]["name"].as_str().unwrap_or_default());
            let options = json!({"preconditions": {"uid": there["metadata"]["uid"]}});
            done(local.delete(&path, &options).await);
        }
    }
    well
}
