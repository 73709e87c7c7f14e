//! Volumes and load balancers of this machine: how long from a claim until it can be used.
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::{Value, json};

use super::infrastructure::Figure;
use super::wire::Connection;

const VOLUMES: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const BALANCERS: &str = "/apis/network.conductor.io/v1alpha1/namespaces/default/ingressclaims";
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures each class, some claims one after the other.
pub async fn measure(api: &mut Connection, rounds: usize) -> anyhow::Result<Vec<Figure>> {
    // as gold, but deleted afterwards instead of shredded and kept
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "xfs"},
        "provisioner": "volume.conductor.io", "reclaimPolicy": "Delete",
        "parameters": {"template": "image-volume", "fileSystem": "xfs", "preallocate": "true", "scrubMethod": "discard"},
    });
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    api.request("POST", classes, Some(("application/json", class.to_string().as_bytes()))).await?;
    let mut figures = Vec::new();
    for (what, collection, class, aim) in [
        ("volume, ext4 image of 1Gi (silver): claim until a file is written", VOLUMES, "silver", "under 150 ms"),
        ("volume, xfs image of 1Gi, preallocated: the same", VOLUMES, "xfs", "under 150 ms"),
        ("volume, directory (bronze): the same", VOLUMES, "bronze", ""),
        ("balancer, HAProxy (silver): claim until it answers HTTP", BALANCERS, "silver", "under 200 ms"),
        ("balancer, forwarded port (bronze): claim until it takes a connection", BALANCERS, "bronze", ""),
    ] {
        let mut times = Vec::new();
        // the first of each warms the page cache
        for round in 0..=rounds {
            let name = format!("{class}-{round}");
            let begun = Instant::now();
            create(api, collection, class, &name).await?;
            usable(api, collection, class, &name).await?;
            if round > 0 {
                times.push(begun.elapsed());
            }
            api.request("DELETE", &format!("{collection}/{name}"), None).await?;
            let begun = Instant::now();
            while api.request("GET", &format!("{collection}/{name}"), None).await?.code != 404 {
                anyhow::ensure!(begun.elapsed() < PATIENCE, "{name} does not go");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        figures.push(Figure::times(what, times, aim));
    }
    settled(api).await?;
    Ok(figures)
}

async fn create(api: &mut Connection, collection: &str, class: &str, name: &str) -> anyhow::Result<()> {
    let claim = match collection {
        VOLUMES => json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
        _ => json!({"apiVersion": "network.conductor.io/v1alpha1", "kind": "IngressClaim", "metadata": {"name": name},
            "spec": {"class": class}}),
    };
    let begun = Instant::now();
    loop {
        let answer = api.request("POST", collection, Some(("application/json", claim.to_string().as_bytes()))).await?;
        match answer.code {
            201 => return Ok(()),
            404 if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(50)).await,
            code => bail!("{code}: {}", answer.json()),
        }
    }
}

async fn usable(api: &mut Connection, collection: &str, class: &str, name: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let claim = api.request("GET", &format!("{collection}/{name}"), None).await?.json();
        if claim["status"]["phase"] == "Bound" {
            let works = match collection {
                VOLUMES => writable(api, &claim).await?,
                _ => answers(api, &claim, class).await?,
            };
            if works {
                return Ok(());
            }
        }
        anyhow::ensure!(begun.elapsed() < PATIENCE, "claim {name} cannot be used: {}", claim["status"]);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn writable(api: &mut Connection, claim: &Value) -> anyhow::Result<bool> {
    let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    let volume = api.request("GET", &format!("/api/v1/persistentvolumes/{name}"), None).await?.json();
    let path = volume["spec"]["local"]["path"].as_str().unwrap_or("/nowhere");
    Ok(fs::write(Path::new(path).join("file"), "data").is_ok())
}

async fn answers(api: &mut Connection, claim: &Value, class: &str) -> anyhow::Result<bool> {
    if class == "silver" {
        let Some(address) = claim["status"]["attributes"]["address"].as_str() else { return Ok(false) };
        let address: IpAddr = address.parse()?;
        let asked = || -> std::io::Result<bool> {
            let mut socket = TcpStream::connect(SocketAddr::new(address, 80))?;
            socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer.starts_with("HTTP/1.1 404"))
        };
        return Ok(asked().unwrap_or(false));
    }
    let Some(binding) = claim["status"]["binding"]["name"].as_str() else { return Ok(false) };
    let path = format!("/api/v1/namespaces/default/configmaps/{binding}");
    let details = api.request("GET", &path, None).await?.json();
    let text = |key: &str| details["data"][key].as_str().unwrap_or_default().to_owned();
    Ok(TcpStream::connect(format!("{}:{}", text("host"), text("port"))).is_ok())
}

/// Until nothing of what was made is left.
async fn settled(api: &mut Connection) -> anyhow::Result<()> {
    let begun = Instant::now();
    let kinds = [
        "/apis/volume.local.conductor.io/v1alpha1/imagevolumes",
        "/apis/volume.local.conductor.io/v1alpha1/directoryvolumes",
        "/apis/network.local.conductor.io/v1alpha1/haproxybalancers",
        "/apis/network.local.conductor.io/v1alpha1/portforwards",
    ];
    for kind in kinds {
        loop {
            let list = api.request("GET", kind, None).await?.json();
            if list["items"].as_array().is_none_or(Vec::is_empty) {
                break;
            }
            anyhow::ensure!(begun.elapsed() < PATIENCE, "{kind} do not go");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
