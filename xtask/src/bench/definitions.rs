//! Custom resource definitions: how fast they are installed and found, and what they take.
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::load::{Request, drive};
use super::report::{Row, Unit};
use super::subject::Subject;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
/// Small definitions are spread over so many groups.
const GROUPS: usize = 50;

fn group(index: usize) -> String {
    format!("g{}.definitions.bench.conductor.io", index % GROUPS)
}

fn definition(index: usize, spec: &Value) -> String {
    let (group, plural) = (group(index), format!("things{index}"));
    let status = json!({"type": "object", "properties": {"ready": {"type": "boolean"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": format!("Thing{index}")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            }],
        },
    })
    .to_string()
}

fn small() -> Value {
    json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 0},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    }})
}

/// About 190 KB of JSON, as large operators have, with texts that no other has.
fn large(depth: usize, index: usize) -> Value {
    if depth == 0 {
        let what = format!("a field that says something about what object {index} should be like");
        return json!({"type": "string", "description": what, "maxLength": 64});
    }
    let fields: serde_json::Map<String, Value> =
        (0..6).map(|at| (format!("field{at}"), large(depth - 1, index))).collect();
    let what = format!("some fields of {index} that belong together, with a text about them");
    json!({"type": "object", "description": what, "properties": fields})
}

/// What the server keeps: the least it takes over a while in which little is asked of it, so that what it only worked with has
/// been given back.
async fn settled(subject: &Subject) -> anyhow::Result<Option<f64>> {
    let mut least: Option<f64> = None;
    for _ in 0..60 {
        for _ in 0..20 {
            subject.endpoint.request("GET", "/api/v1/namespaces/default", None).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Some(now) = subject.memory() else { return Ok(None) };
        least = Some(least.map_or(now, |least| least.min(now)));
    }
    Ok(least)
}

/// Installs small definitions and then large ones, and removes all of them again.
pub async fn run(subject: &Subject, count: usize, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let endpoint = &subject.endpoint;
    // The first large ones leave the server with room to work in, which the next use again: only those after them count.
    let (first, larges) = (40, 200);
    let before = settled(subject).await?;
    let post = |body: String| Request { method: "POST", path: PATH.into(), body: Some((JSON, body)) };
    let started = Instant::now();
    let schema = small();
    drive(endpoint, 8, count, move |index| post(definition(index, &schema))).await?;
    discovered(subject, count).await?;
    let took = started.elapsed().as_secs_f64();
    rows.push(Row::new("definitions installed and discovered", Unit::PerSecond, count as f64 / took));
    if let (Some(before), Some(after)) = (before, settled(subject).await?) {
        rows.push(Row::new("memory per small definition", Unit::Kibibytes, (after - before) * 1024.0 / count as f64));
    }
    published(subject, count, rows).await?;
    let json = definition(count, &large(4, count)).len() as f64;
    let mut between = None;
    for (from, to) in [(0, first), (first, larges)] {
        between = settled(subject).await?;
        let large = move |index| definition(index, &large(4, index));
        drive(endpoint, 1, to - from, move |index| post(large(count + from + index))).await?;
        discovered(subject, count + to).await?;
    }
    if let (Some(between), Some(after)) = (between, settled(subject).await?) {
        let each = (after - between) * 1024.0 * 1024.0 / (larges - first) as f64;
        rows.push(Row::new("memory per large definition, in its JSON", Unit::Times, each / json));
    }
    drive(endpoint, 8, count + larges, move |index| Request {
        method: "DELETE",
        path: format!("{PATH}/things{index}.{}", group(index)),
        body: None,
    })
    .await?;
    Ok(())
}

/// Makes one definition more and waits until it is where clients look for it, one place after the other; then takes it away.
async fn published(subject: &Subject, count: usize, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let endpoint = &subject.endpoint;
    // Beyond all that are made here.
    let index = count + 10 * GROUPS;
    let (group, kind) = (group(index), format!("\"Thing{index}\""));
    let v3 = format!("/openapi/v3/apis/{group}/v1");
    let places = [
        ("one more definition until it is discovered", format!("/apis/{group}/v1")),
        ("one more definition until it is in OpenAPI v3", v3),
        ("one more definition until it is in OpenAPI v2", "/openapi/v2".to_owned()),
    ];
    let started = Instant::now();
    let made = endpoint.request("POST", PATH, Some((JSON, definition(index, &small()).as_bytes()))).await?;
    ensure!(made.code == 201, "the definition was not made: {}", made.code);
    for (what, path) in places {
        loop {
            let answer = endpoint.request("GET", &path, None).await.context(what)?;
            if answer.code == 200 && String::from_utf8_lossy(&answer.body).contains(&kind) {
                break;
            }
            ensure!(started.elapsed() < Duration::from_secs(300), "{what}: it does not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let took = started.elapsed().as_secs_f64() * 1000.0;
        rows.push(Row::new(what, Unit::Milliseconds, took));
    }
    endpoint.request("DELETE", &format!("{PATH}/things{index}.{group}"), None).await?;
    Ok(())
}

/// Waits until discovery, as clients ask for it, has all of them.
async fn discovered(subject: &Subject, count: usize) -> anyhow::Result<()> {
    let patience = Instant::now() + Duration::from_secs(300);
    while Instant::now() < patience {
        let mut found = 0;
        for at in 0..GROUPS.min(count) {
            let path = format!("/apis/{}/v1", group(at));
            let answer = subject.endpoint.request("GET", &path, None).await.context("discovery")?;
            if answer.code != 200 {
                break;
            }
            let resources = answer.json()["resources"].as_array().cloned().unwrap_or_default();
            // Each has a status beside it.
            found += resources.len() / 2;
        }
        ensure!(found <= count, "discovery has {found} of {count} definitions");
        if found == count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{count} definitions are not discovered")
}
