//! The same volumes and claims put to Kubernetes' own binder and to ours: they choose the same.
//!
//! Each claim has volumes of its own, by their class, so that nothing depends on who comes first.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{Cluster, PATIENCE};
use conductor_managers::Options;
use conductor_testkit::{Plane, skip};
use serde_json::{Value, json};

const CONTROLLERS: &str = "persistentvolume-binder-controller,persistentvolume-protection-controller,\
                           persistentvolumeclaim-protection-controller,serviceaccount-controller";
const CLAIMS: u64 = 400;
const MODES: [&str; 3] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
/// How long both must have agreed.
const SETTLED: Duration = Duration::from_secs(5);

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    /// One or more modes.
    fn modes(&mut self) -> Vec<&'static str> {
        let bits = 1 + self.roll(7);
        MODES.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, mode)| *mode).collect()
    }
}

/// A claim and the volumes that could be for it.
fn group(number: u64, dice: &mut Dice) -> (Vec<Value>, Value) {
    let (class, name) = (format!("class-{number}"), format!("claim-{number}"));
    let mut sizes: Vec<u64> = (1..=8).collect();
    let volumes: Vec<Value> = (0..=dice.roll(5))
        .map(|at| {
            let size = sizes.swap_remove(dice.roll(sizes.len() as u64) as usize);
            let mut volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": format!("volume-{number}-{at}"), "labels": {"colour": if dice.once_in(2) { "red" } else { "blue" }}},
                "spec": {
                    "capacity": {"storage": format!("{size}Gi")}, "accessModes": dice.modes(),
                    "storageClassName": if dice.once_in(8) { "another" } else { &class },
                    "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/nowhere"},
                },
            });
            if dice.once_in(8) {
                volume["spec"]["volumeMode"] = json!("Block");
            }
            match dice.roll(12) {
                0 | 1 => volume["spec"]["claimRef"] = json!({"namespace": "apps", "name": name}),
                2 => volume["spec"]["claimRef"] = json!({"namespace": "apps", "name": "somebody-else"}),
                3 => volume["spec"]["claimRef"] = json!({"namespace": "apps", "name": name, "uid": "of-long-ago"}),
                _ => {}
            }
            volume
        })
        .collect();
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "apps", "name": name},
        "spec": {
            "accessModes": if dice.once_in(4) { dice.modes() } else { vec![MODES[dice.roll(3) as usize]] },
            "storageClassName": class,
            "resources": {"requests": {"storage": format!("{}Gi", 1 + dice.roll(6))}},
        },
    });
    if dice.once_in(8) {
        claim["spec"]["volumeMode"] = json!("Block");
    }
    if dice.once_in(5) {
        claim["spec"]["selector"] = json!({"matchLabels": {"colour": "red"}});
    }
    if dice.once_in(6) {
        claim["spec"]["volumeName"] = json!(format!("volume-{number}-{}", dice.roll(3)));
    }
    (volumes, claim)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What came of each claim: its phase and, if it is bound, its volume.
async fn outcomes(cluster: &Cluster) -> BTreeMap<String, (String, String)> {
    let claims = cluster.api.list("v1", "PersistentVolumeClaim", "").await.expect("claims");
    let outcome = |claim: &Value| {
        let phase = text(&claim["status"]["phase"]).to_owned();
        let volume = if phase == "Bound" { text(&claim["spec"]["volumeName"]) } else { "" };
        (text(&claim["metadata"]["name"]).to_owned(), (phase, volume.to_owned()))
    };
    claims.iter().map(outcome).collect()
}

/// Whether a difference is one of those that Kubernetes leaves to chance, or is known for: among volumes with as many modes more than
/// were asked it takes those with the modes that its map shows first, and one that is reserved for a claim loses to one with fewer.
fn is_a_quirk(volumes: &BTreeMap<String, Value>, claim: &str, theirs: &str, ours: &str) -> bool {
    let (Some(theirs), Some(ours)) = (volumes.get(theirs), volumes.get(ours)) else { return false };
    let modes = |volume: &Value| volume["spec"]["accessModes"].as_array().map_or(0, Vec::len);
    let reserved = ours["spec"]["claimRef"]["name"] == claim && ours["spec"]["claimRef"]["uid"].is_null();
    let other_modes = ours["spec"]["accessModes"] != theirs["spec"]["accessModes"];
    other_modes && (modes(ours) == modes(theirs) || (reserved && modes(ours) > modes(theirs)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_own_binder_chooses_the_same() {
    let plane = match Plane::start(CONTROLLERS) {
        Ok(plane) => plane,
        Err(why) => return skip("kubernetes_own_binder_chooses_the_same", &why),
    };
    let theirs = Cluster::of(plane.cluster().await.client());
    let ours = Cluster::start(false).await;
    let managers = ours.managers(Options { types: false, ..Options::default() }).await;
    let mut dice = Dice(20_261_118);
    let groups: Vec<(Vec<Value>, Value)> = (0..CLAIMS).map(|number| group(number, &mut dice)).collect();
    let volumes: Vec<&Value> = groups.iter().flat_map(|(volumes, _)| volumes).collect();
    for cluster in [&theirs, &ours] {
        cluster.namespace("apps").await;
        for volume in &volumes {
            cluster.create(volume).await;
        }
        let begun = Instant::now();
        loop {
            let live = cluster.api.list("v1", "PersistentVolume", "").await.expect("volumes");
            if live.iter().all(|volume| matches!(text(&volume["status"]["phase"]), "Available" | "Released")) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "not every volume is Available or Released");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (_, claim) in &groups {
            cluster.create(claim).await;
        }
    }
    let by_name: BTreeMap<String, Value> =
        volumes.iter().map(|volume| (text(&volume["metadata"]["name"]).to_owned(), (*volume).clone())).collect();
    let (begun, mut since, mut before) = (Instant::now(), Instant::now(), None);
    let (bound, quirks) = loop {
        let (own, other) = (outcomes(&ours).await, outcomes(&theirs).await);
        let apart: Vec<String> = own
            .iter()
            .filter(|(claim, outcome)| other.get(*claim) != Some(*outcome))
            .map(|(claim, outcome)| format!("{claim}: ours {outcome:?}, Kubernetes {:?}", other.get(claim)))
            .collect();
        let real = |line: &&String| {
            let claim = line.split(':').next().unwrap_or_default();
            let volume =
                |outcomes: &BTreeMap<String, (String, String)>| outcomes.get(claim).map(|(_, volume)| volume.clone());
            let (theirs, ours) = (volume(&other).unwrap_or_default(), volume(&own).unwrap_or_default());
            !is_a_quirk(&by_name, claim, &theirs, &ours)
        };
        let wrong: Vec<&String> = apart.iter().filter(real).collect();
        let now = (own.clone(), other);
        if before.as_ref() != Some(&now) || !wrong.is_empty() {
            since = Instant::now();
        }
        if since.elapsed() > SETTLED {
            break (own.values().filter(|(phase, _)| phase == "Bound").count(), apart.len() - wrong.len());
        }
        before = Some(now);
        let shown = wrong.iter().map(|line| {
            let claim = line.split(':').next().unwrap_or_default();
            let number = claim.trim_start_matches("claim-");
            let own = by_name.iter().filter(|(name, _)| name.starts_with(&format!("volume-{number}-")));
            let asked = groups.iter().find(|(_, c)| c["metadata"]["name"] == claim).map(|(_, c)| c["spec"].to_string());
            let volumes: Vec<String> = own.map(|(name, volume)| format!("\n    {name} {}", volume["spec"])).collect();
            format!("{line}\n  {}{}", asked.unwrap_or_default(), volumes.concat())
        });
        assert!(begun.elapsed() < 2 * PATIENCE, "apart:\n{}", shown.collect::<Vec<_>>().join("\n"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    println!(
        "{CLAIMS} claims: {bound} bound to the same volume, {quirks} by chance or a known quirk to another, the rest wait on both"
    );
    assert!(bound as u64 > CLAIMS / 3 && (bound as u64) < CLAIMS, "{bound} bound: nothing was shown");
    drop(managers);
}
