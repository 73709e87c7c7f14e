//! What a bind costs a server without transactions: its four writes, and nothing read for it.

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Cluster, admin, phase_is, pv, pvc, volume, volume_claim};
use conductor_apiserver::Service;
use conductor_apiserver::body::Body as Answer;
use conductor_managers::{Managers, Options};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tokio::time::Instant;

/// How many requests there were: by verb, what they were about, and the code of their answer.
type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

type Shown = UnsyncBoxBody<bytes::Bytes, Infallible>;

/// How long an answer to a write takes, and how much later watches show what was written.
const LATE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(20)];

/// A server that answers late and shows later, and counts.
#[derive(Clone)]
struct Late {
    inner: Service,
    counts: Counts,
}

impl tower::Service<Request<Body>> for Late {
    type Response = Response<Shown>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut inner, counts) = (self.inner.clone(), self.counts.clone());
        let parts: Vec<&str> = request.uri().path().split('/').collect();
        let about = ["persistentvolumes", "persistentvolumeclaims"].into_iter().find_map(|kind| {
            let at = parts.iter().position(|part| *part == kind)?;
            // one object, not all of them
            (parts.len() > at + 1).then(|| format!("{} {kind}/{}", request.method(), parts[at + 2..].join("/")))
        });
        let writes = request.method() == Method::PATCH;
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        Box::pin(async move {
            let (parts, body) = tower::Service::call(&mut inner, request).await?.into_parts();
            if let Some(about) = about {
                *counts.lock().expect("counts").entry(format!("{about} {}", parts.status.as_u16())).or_default() += 1;
            }
            if writes {
                tokio::time::sleep(LATE[0]).await;
            }
            let body = if watches { later(body) } else { body.boxed_unsync() };
            Ok(Response::from_parts(parts, body))
        })
    }
}

/// The same a while later, and not one piece after the other.
fn later(mut body: Answer) -> Shown {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(frame) = body.frame().await {
            if sender.send((Instant::now() + LATE[1], frame)).is_err() {
                return;
            }
        }
    });
    let frames = futures::stream::unfold(receiver, |mut receiver| async {
        let (at, frame) = receiver.recv().await?;
        tokio::time::sleep_until(at).await;
        Some((frame, receiver))
    });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_in_order_is_four_writes_and_reads_nothing() {
    const COUNT: usize = 200;
    let cluster = Cluster::start(false).await;
    conductor_managers::install::install(&cluster.api).await.expect("installed");
    let counts = Counts::default();
    let inner = cluster.server().service(admin());
    let client = kube::Client::new(Late { inner, counts: counts.clone() }, "default");
    let options = Options { ordered: true, types: false, ..Options::default() };
    let _managers = Managers::start(client, options).await.expect("managers");
    for n in 0..COUNT {
        cluster.create(&volume(&format!("v{n}"), "10Gi", "")).await;
    }
    for n in 0..COUNT {
        cluster.until(&pv(&format!("v{n}")), "free", phase_is("Available")).await;
    }
    counts.lock().expect("counts").clear();
    // all at once: what is to be looked at is in line behind others
    let claims: Vec<_> = (0..COUNT).map(|n| volume_claim("default", &format!("c{n}"), "5Gi", "")).collect();
    futures::future::join_all(claims.iter().map(|claim| cluster.create(claim))).await;
    for n in 0..COUNT {
        cluster.until(&pvc("default", &format!("c{n}")), "bound", phase_is("Bound")).await;
    }
    for n in 0..COUNT {
        cluster.until(&pv(&format!("v{n}")), "bound", phase_is("Bound")).await;
    }
    // whatever is looked at once more is looked at by then
    tokio::time::sleep(Duration::from_millis(500)).await;
    let counts = counts.lock().expect("counts").clone();
    let all: usize = counts.values().sum();
    for write in
        ["persistentvolumes/", "persistentvolumes/status", "persistentvolumeclaims/", "persistentvolumeclaims/status"]
    {
        assert_eq!(counts.get(&format!("PATCH {write} 200")), Some(&COUNT), "{write}: {counts:?}");
    }
    // a machine that is very busy may show something after seconds only
    assert!(all - 4 * COUNT <= COUNT / 10, "{counts:?}");
}
