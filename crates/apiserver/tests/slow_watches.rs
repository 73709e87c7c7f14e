//! Watches whose readers are slow: large events come in pieces, and nothing is kept for those who do not read them.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::Api;
use conductor_apiserver::body::{Body, PIECE};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Begins a watch, or any other answer that is to be read in pieces.
async fn begin(api: &Api, query: &str, accept: &str) -> Body {
    let request = Request::get(format!("{MAPS}?{query}")).header("accept", accept).extension(api.user.clone());
    let response = api.server.handle(request.body(Full::new(Bytes::new())).unwrap()).await;
    assert_eq!(response.status(), 200, "{query}");
    response.into_body()
}

/// The next piece, which is none too large.
async fn piece(body: &mut Body) -> Option<Bytes> {
    let piece = body.frame().await?.unwrap().into_data().unwrap();
    assert!(piece.len() < 2 * PIECE + 1024, "a piece of {} bytes", piece.len());
    Some(piece)
}

/// The next event in JSON.
async fn event(body: &mut Body) -> Value {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        line.extend_from_slice(&piece(body).await.expect("the watch goes on"));
    }
    serde_json::from_slice(&line).unwrap()
}

/// A ConfigMap of 900 KB.
fn large(letter: &str) -> Value {
    json!({"metadata": {"name": "large"}, "data": {"text": letter.repeat(900_000)}})
}

/// Replaces it often enough for the window to forget what was before.
async fn overtake(api: &Api) {
    for number in 0..20 {
        let letter = char::from(b'a' + number).to_string();
        assert_eq!(api.put(&format!("{MAPS}/large"), &large(&letter)).await.0, 200);
    }
}

#[tokio::test]
async fn large_events_come_whole_in_small_pieces() {
    let api = Api::new().await;
    let made = api.create(MAPS, &large("x")).await;
    let only = "fieldSelector=metadata.name%3Dlarge";
    let mut plain = begin(&api, &format!("watch=1&{only}"), "application/json").await;
    let mut table = begin(&api, &format!("watch=1&includeObject=Object&{only}"), TABLE).await;
    let since = made["metadata"]["resourceVersion"].as_str().unwrap();
    let selected = format!("watch=1&labelSelector=!gone&resourceVersion={since}");
    let mut selected = begin(&api, &selected, "application/json").await;
    let mut binary = begin(&api, &format!("watch=1&{only}"), PROTOBUF).await;
    let first = event(&mut plain).await;
    assert!(first["type"] == "ADDED" && first["object"] == made);
    assert_eq!(event(&mut table).await["object"]["rows"][0]["object"]["data"], made["data"]);

    // Several at once, small ones between them, and one that leaves the selection.
    let mut changed = Vec::new();
    for letter in ["a", "b", "c"] {
        changed.push(api.put(&format!("{MAPS}/large"), &large(letter)).await.1);
        api.create(MAPS, &json!({"metadata": {"name": letter}})).await;
    }
    let gone = api.merge(&format!("{MAPS}/large"), &json!({"metadata": {"labels": {"gone": "yes"}}})).await.1;
    for object in changed.iter().chain([&gone]) {
        let event = event(&mut plain).await;
        assert!(event["type"] == "MODIFIED" && event["object"] == *object);
    }
    for object in &changed {
        assert_eq!(event(&mut table).await["object"]["rows"][0]["object"]["data"], object["data"]);
    }
    let mut lines = Vec::new();
    while lines.iter().filter(|byte| **byte == b'\n').count() < 7 {
        lines.extend_from_slice(&piece(&mut selected).await.unwrap());
    }
    let told: Vec<Value> = serde_json::Deserializer::from_slice(&lines).into_iter().map(Result::unwrap).collect();
    let names = |event: &Value| format!("{} {}", event["type"], event["object"]["metadata"]["name"]).replace('"', "");
    let names: Vec<String> = told.iter().map(names).collect();
    let wanted =
        ["MODIFIED large", "ADDED a", "MODIFIED large", "ADDED b", "MODIFIED large", "ADDED c", "DELETED large"];
    assert_eq!(names, wanted);
    assert_eq!(told[6]["object"]["data"], changed[2]["data"]);

    let mut bytes = piece(&mut binary).await.unwrap().to_vec();
    let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    while bytes.len() < 4 + length {
        bytes.extend_from_slice(&piece(&mut binary).await.unwrap());
    }
    assert!(length > 900_000 && bytes.len() == 4 + length, "{length} {}", bytes.len());

    // Lists are sent in the same way.
    let mut list = begin(&api, "", "application/json").await;
    let mut bytes = Vec::new();
    while let Some(piece) = piece(&mut list).await {
        bytes.extend_from_slice(&piece);
    }
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    let shown = list["items"].as_array().unwrap().iter().find(|own| own["metadata"]["name"] == "large").unwrap();
    assert_eq!(shown["data"], gone["data"]);
}

#[tokio::test]
async fn who_does_not_read_keeps_nothing_alive_and_is_told_to_begin_anew() {
    let api = Api::new().await;
    api.create(MAPS, &large("x")).await;
    let stored = || api.server.store().get("core/configmaps", "default/large").expect("is stored");
    let mut first = Arc::downgrade(&stored());
    let only = "fieldSelector=metadata.name%3Dlarge";
    // One that has read nothing of what there was, one that is within it, one that is within an event.
    let mut unread = begin(&api, &format!("watch=1&{only}"), "application/json").await;
    let mut begun = begin(&api, &format!("watch=1&{only}"), "application/json").await;
    piece(&mut begun).await.unwrap();
    piece(&mut begun).await.unwrap();
    overtake(&api).await;
    assert!(first.upgrade().is_none(), "somebody keeps the first version");
    let refused = event(&mut unread).await;
    assert!(refused["type"] == "ERROR" && refused["object"]["code"] == 410, "{refused}");
    assert!(piece(&mut unread).await.is_none());
    assert!(piece(&mut begun).await.is_none(), "it ends within the event");

    let revision = stored().revision;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(begin(&api, &format!("watch=1&resourceVersion={revision}"), "application/json").await);
    }
    first = {
        assert_eq!(api.put(&format!("{MAPS}/large"), &large("y")).await.0, 200);
        Arc::downgrade(&stored())
    };
    for watch in &mut watches {
        piece(watch).await.unwrap();
    }
    overtake(&api).await;
    assert!(first.upgrade().is_none(), "somebody keeps the event");
    for watch in &mut watches {
        assert!(piece(watch).await.is_none());
    }
}

#[tokio::test]
async fn what_is_made_for_slow_watches_is_bounded_together() {
    let api = Api::new().await;
    let revision = api.create(MAPS, &large("x")).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(begin(&api, &format!("watch=1&resourceVersion={revision}"), PROTOBUF).await);
    }
    assert_eq!(api.put(&format!("{MAPS}/large"), &large("y")).await.0, 200);
    for watch in &mut watches {
        piece(watch).await.unwrap();
    }
    // 64 MiB are kept: those who came first have to begin anew, the others go on.
    let mut going = Vec::new();
    for watch in &mut watches {
        going.push(piece(watch).await.is_some());
    }
    let ended = going.iter().filter(|goes| !**goes).count();
    assert!((20..40).contains(&ended), "{ended}");
    assert!(going[..ended].iter().all(|goes| !goes) && going[ended..].iter().all(|goes| *goes));
}
