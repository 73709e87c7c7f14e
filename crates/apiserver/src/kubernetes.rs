//! The Service by which Pods find this server: `kubernetes` in `default`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use machinery::status::Status;
use serde_json::{Value, json};

use crate::local::Local;
use crate::server::Server;

/// The first address of the Services' network.
const ADDRESS: &str = "10.96.0.1";
/// A port until the server listens on one.
const PORT: u16 = 6443;
/// An address for documentation: what listens on loopback only cannot be reached from a Pod, and loopback is no endpoint.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Makes the Service and says where the server listens, if that is known.
pub async fn publish(server: &Server, listening: Option<SocketAddr>) -> Result<(), Status> {
    let local = Local::new(server, "kube-apiserver");
    let known = server.store().get("core/services", "default/kubernetes").is_some();
    let port = match listening {
        Some(address) => address.port(),
        None if known => return Ok(()),
        None => PORT,
    };
    let ip = match listening.map(|address| address.ip()) {
        Some(ip) if !ip.is_loopback() && !ip.is_unspecified() => ip,
        Some(ip) if ip.is_unspecified() => own_address().unwrap_or(NOWHERE.into()),
        _ => NOWHERE.into(),
    };
    let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": ADDRESS, "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    put(&local, server, "core/services", "/api/v1/namespaces/default/services", &service).await?;
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    put(
        &local,
        server,
        "discovery.k8s.io/endpointslices",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        &slice,
    )
    .await?;
    let endpoints = json!({
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{
            "addresses": [{"ip": ip.to_string()}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }],
    });
    put(&local, server, "core/endpoints", "/api/v1/namespaces/default/endpoints", &endpoints).await
}

/// Creates an object, or merges it into the one that is there.
async fn put(local: &Local, server: &Server, table: &str, path: &str, object: &Value) -> Result<(), Status> {
    if server.store().get(table, "default/kubernetes").is_none() {
        return local.create(path, object).await.map(drop);
    }
    let named = format!("{path}/kubernetes");
    match local.merge(&named, object).await {
        // Of another family than before, say: it has to be made anew.
        Err(status) if status.code == 422 => {
            local.delete(&named, &json!({})).await?;
            local.create(path, object).await.map(drop)
        }
        done => done.map(drop),
    }
}

/// The address this machine has towards others. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((NOWHERE, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
