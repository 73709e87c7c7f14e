//! Databases behind claims: how long until one can be used, what one costs, and a hundred of them.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use serde_json::{Value, json};

use super::infrastructure::Figure;
use super::wire::Connection;

const CLAIMS: &str = "/apis/storage.conductor.io/v1alpha1/namespaces/default/relationaldatabaseclaims";
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures both engines: some claims one after the other, then many at once.
pub async fn measure(
    api: &mut Connection,
    rounds: usize,
    instances: usize,
    home: &Path,
) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (class, aim) in [("postgres", "under 500 ms"), ("mariadb", "")] {
        // the first makes the template, which later ones copy
        let mut times = Vec::new();
        for round in 0..=rounds {
            let took = once(api, class, &format!("{class}-{round}")).await?;
            if round > 0 {
                times.push(took);
            }
        }
        figures.push(Figure::times(&format!("{class}: claim until its client has an answer"), times, aim));
    }
    for (class, count) in [("postgres", instances), ("mariadb", instances.div_ceil(10))] {
        let begun = Instant::now();
        for n in 0..count {
            create(api, class, &format!("many-{n}")).await?;
        }
        for n in 0..count {
            usable(api, &format!("many-{n}")).await?;
        }
        let what = format!("{class}: {count} claims at once until all can be used");
        figures.push(Figure::one(what, format!("{:.1} s", begun.elapsed().as_secs_f64())));
        let each = memory(home) / 1024.0 / count as f64;
        let what = format!("{class}: memory of an idle instance (proportional set size), {count} of them");
        figures.push(Figure::one(what, format!("{each:.1} MiB")));
        let begun = Instant::now();
        for n in 0..count {
            api.request("DELETE", &format!("{CLAIMS}/many-{n}"), None).await?;
        }
        while !all_gone(api).await? {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "they do not go");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let what = format!("{class}: {count} claims deleted until nothing is left");
        figures.push(Figure::one(what, format!("{:.1} s", begun.elapsed().as_secs_f64())));
    }
    Ok(figures)
}

/// One claim, from before it is sent to the first answer of its client; then it is deleted.
async fn once(api: &mut Connection, class: &str, name: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    create(api, class, name).await?;
    usable(api, name).await?;
    let took = begun.elapsed();
    api.request("DELETE", &format!("{CLAIMS}/{name}"), None).await?;
    let begun = Instant::now();
    while !all_gone(api).await? {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "{name} does not go");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(took)
}

async fn create(api: &mut Connection, class: &str, name: &str) -> anyhow::Result<()> {
    let claim = json!({
        "apiVersion": "storage.conductor.io/v1alpha1", "kind": "RelationalDatabaseClaim",
        "metadata": {"name": name}, "spec": {"class": class},
    });
    let begun = Instant::now();
    loop {
        let answer = api.request("POST", CLAIMS, Some(("application/json", claim.to_string().as_bytes()))).await?;
        match answer.code {
            201 => return Ok(()),
            404 if begun.elapsed() < Duration::from_secs(30) => tokio::time::sleep(Duration::from_millis(50)).await,
            code => bail!("{code}: {}", answer.json()),
        }
    }
}

/// Waits for a claim's Secret and for its client to have an answer.
async fn usable(api: &mut Connection, name: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let claim = api.request("GET", &format!("{CLAIMS}/{name}"), None).await?.json();
        if let Some(secret) = claim["status"]["binding"]["name"].as_str() {
            let path = format!("/api/v1/namespaces/default/secrets/{secret}");
            let secret = api.request("GET", &path, None).await?.json();
            if secret["data"].is_object() && answers(&secret)? {
                return Ok(());
            }
        }
        anyhow::ensure!(begun.elapsed() < PATIENCE, "claim {name} cannot be used: {}", claim["status"]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn answers(secret: &Value) -> anyhow::Result<bool> {
    let data = secret["data"].as_object().context("has data")?;
    let plain = |v: &Value| -> Option<String> {
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(v.as_str()?).ok()?).ok()
    };
    let all: BTreeMap<&str, String> = data.iter().filter_map(|(k, v)| Some((k.as_str(), plain(v)?))).collect();
    let get = |key: &str| all.get(key).map(String::as_str).unwrap_or_default();
    let mut command = match get("type") {
        "postgresql" => {
            let mut command = Command::new("psql");
            command.args(["-XqAtc", "select 1", get("uri")]);
            command
        }
        _ => {
            let mut command = Command::new("mariadb");
            command.args([
                "--no-defaults",
                "--protocol=tcp",
                "-h",
                get("host"),
                "-P",
                get("port"),
                "-u",
                get("username"),
            ]);
            command.args(["-e", "select 1", get("database")]).env("MYSQL_PWD", get("password"));
            command
        }
    };
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).status().context("running the client")?.success())
}

async fn all_gone(api: &mut Connection) -> anyhow::Result<bool> {
    for plural in ["postgresinstances", "mariadbinstances"] {
        let path = format!("/apis/database.local.conductor.io/v1alpha1/{plural}");
        let list = api.request("GET", &path, None).await?.json();
        if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// KiB that all servers below a directory have in memory, what they share counted once.
fn memory(home: &Path) -> f64 {
    // servers that run as other users are kept where those can get
    let home = fs::read_link(home).unwrap_or_else(|_| home.to_owned());
    let mut total = 0.0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let at = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if !at.starts_with(&home) {
            continue;
        }
        let rollup = fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
        total += kib.unwrap_or(0.0);
    }
    total
}
