//! The cost of one decision, and the memory of the index, by the number of resources.
//!
//! `cargo bench -p conductor-claims` prints a table; `-- 1000 50000` chooses the sizes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use conductor_claims::amount::Amount;
use conductor_claims::matching::{Decision, Index, NoJudge};
use conductor_claims::rules::{Attribute, Capacity, Kind, Match, Rules, Value, Want};
use conductor_claims::selector::labels_of;
use conductor_claims::version::{Version, VersionRange};
use conductor_claims::views::{Ask, ClassAsk, Offer, Phase, Shape, Wish};

const GI: i64 = 1 << 30;

fn rules() -> Arc<Rules> {
    let attribute = |name: &str, kind, matching| Attribute {
        name: name.into(),
        alias: None,
        kind,
        matching,
        values: Vec::new(),
        required: false,
    };
    Arc::new(Rules {
        claim: "RelationalDatabaseClaim".into(),
        resource: "RelationalDatabase".into(),
        attributes: vec![
            attribute("engine", Kind::Text, Match::Equal),
            attribute("version", Kind::Version, Match::VersionRange),
            attribute("highlyAvailable", Kind::Flag, Match::AtLeast),
        ],
        capacities: vec![
            Capacity { name: "storage".into(), exact: false },
            Capacity { name: "cpu".into(), exact: false },
        ],
        max_claims: 1,
        volumes: false,
    })
}

fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn offer(n: u64) -> Offer {
    let h = mix(n);
    Offer {
        name: format!("relationaldatabase-{:08x}-{n:08}", h as u32).into(),
        uid: format!("{:08x}-0000-4000-8000-{n:012}", h as u32).into(),
        revision: n,
        shape: Arc::new(Shape {
            class: Some(["fast", "slow", "archive", "gold"][h as usize % 4].into()),
            attributes: Box::new([
                Some(Value::Text(["mysql", "postgres"][(h >> 2) as usize % 2].into())),
                Some(Value::Version(Arc::new(Version::parse(["5.6", "5.7", "8.0", "15.4"][(h >> 3) as usize % 4])))),
                Some(Value::Flag((h >> 5).is_multiple_of(2))),
            ]),
            ..Shape::default()
        }),
        capacity: Box::new([
            Amount::units((1 + (h >> 8) as i64 % 100_000) * GI / 1024),
            Amount::units(1 + (h >> 40) as i64 % 64),
        ]),
        labels: labels_of(Some(&serde_json::json!({"zone": format!("z{}", h % 3)}))),
        phase: Phase::Available,
        deleting: false,
        refs: Box::new([]),
        max_claims: 1,
    }
}

fn ask(n: u64) -> Ask {
    let h = mix(n ^ 0x5555);
    Ask {
        uid: format!("claim-uid-{n}").into(),
        namespace: "bench".into(),
        name: format!("claim-{n}").into(),
        since: n as i64,
        wish: Arc::new(Wish {
            class: ClassAsk::Named(["fast", "slow", "archive", "gold"][h as usize % 4].into()),
            attributes: Box::new([
                Some(Want::Value(Value::Text(["mysql", "postgres"][(h >> 2) as usize % 2].into()))),
                VersionRange::parse(">= 5.7").ok().map(|r| Want::Range(Arc::new(r))),
                None,
            ]),
            ..Wish::default()
        }),
        lower: Box::new([
            Amount::units((1 + (h >> 8) as i64 % 90_000) * GI / 1024),
            Amount::units(1 + (h >> 40) as i64 % 60),
        ]),
        upper: Box::new([None, None]),
        resource_name: None,
        needed: true,
        barred: Box::default(),
        bound: false,
    }
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let sizes: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000, 100_000, 1_000_000] } else { sizes };
    println!("resources  insert µs  decide p50 µs  decide p99 µs  bind µs  refuse µs  MiB resident  MiB counted");
    for size in sizes {
        let before = resident();
        let mut index = Index::new(rules());
        let start = Instant::now();
        for n in 0..size {
            index.upsert(offer(n));
        }
        let insert = start.elapsed().as_secs_f64() * 1e6 / size as f64;
        let resident = resident().saturating_sub(before);
        let asks: Vec<Ask> = (0..10_000).map(ask).collect();
        let mut times: Vec<f64> = asks
            .iter()
            .map(|ask| {
                let start = Instant::now();
                black_box(index.decide(ask, &NoJudge));
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let mut impossible = ask(1);
        impossible.lower[0] = Amount::MAX;
        let start = Instant::now();
        for _ in 0..1000 {
            black_box(index.decide(&impossible, &NoJudge));
        }
        let refuse = start.elapsed().as_secs_f64() * 1e3;
        // a bind: decide, then assume
        let start = Instant::now();
        let mut bound = 0;
        for ask in asks.iter().take((size / 2).min(10_000) as usize) {
            if let Decision::Bind { resource, .. } = index.decide(ask, &NoJudge) {
                bound += usize::from(index.assume(ask, &resource));
            }
        }
        let bind = start.elapsed().as_secs_f64() * 1e6 / bound.max(1) as f64;
        println!(
            "{size:>9}  {insert:>9.2}  {:>13.2}  {:>13.2}  {bind:>7.2}  {refuse:>9.2}  {:>12.1}  {:>11.1}",
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            resident as f64 / 1048576.0,
            index.bytes() as f64 / 1048576.0,
        );
    }
}
