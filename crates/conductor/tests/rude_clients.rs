//! Clients that are slow, silent, or speak the protocol wrongly: others are served all the while, memory stays small.

mod common;

use std::time::Duration;

use common::{Conductor, JSON, block_on};
use conductor_testkit::wire::{Connection, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A new client can connect, write and read.
async fn serves(endpoint: &Endpoint, who: &str) {
    let work = async {
        let body = format!(r#"{{"metadata":{{"generateName":"{who}-"}}}}"#);
        let mut connection = endpoint.connect().await.expect("connects");
        let made = connection.request("POST", MAPS, Some((JSON, body.as_bytes()))).await.expect("answers");
        assert_eq!(made.code, 201, "{who}: {}", made.json());
        assert_eq!(connection.request("GET", "/readyz", None).await.expect("answers").code, 200);
    };
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap_or_else(|_| panic!("{who}: no one is served"));
}

/// Waits until the server closes a connection.
async fn is_closed(mut stream: impl AsyncReadExt + Unpin, who: &str) {
    let mut sink = vec![0; 4096];
    let read = async { while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {} };
    let waited = tokio::time::timeout(Duration::from_secs(40), read).await;
    assert!(waited.is_ok(), "{who}: the connection is still open");
}

#[test]
fn slow_and_silent_clients_keep_no_one_else_out() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    block_on(async {
        // Neither word nor handshake.
        let mut silent = Vec::new();
        for number in 0..300 {
            let mut stream = TcpStream::connect(endpoint.address).await.expect("connects");
            if number % 2 == 0 {
                // The beginning of a TLS record that never ends.
                stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1]).await.expect("is sent");
            }
            silent.push(stream);
        }
        serves(&endpoint, "silent").await;

        // Headers that never end, a byte now and then.
        let mut trickling = endpoint.connect().await.expect("connects");
        trickling.write(format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\nX-Slow: ").as_bytes()).await.expect("is sent");
        let trickle = tokio::spawn(async move {
            while trickling.write(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });

        // Bodies that never end: more than there may be writes at once.
        let mut unfinished = Vec::new();
        for _ in 0..300 {
            let mut connection = endpoint.connect().await.expect("connects");
            let head =
                format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: 100000\r\n\r\n{{");
            connection.write(head.as_bytes()).await.expect("is sent");
            unfinished.push(connection);
        }
        serves(&endpoint, "unfinished").await;

        // Idle ones, by the thousand.
        let mut idle = Vec::new();
        for _ in 0..2_000 {
            idle.push(endpoint.connect().await.expect("connects"));
        }
        serves(&endpoint, "idle").await;

        // Watchers that never read, while much happens.
        let mut deaf = Vec::new();
        for _ in 0..20 {
            let connection = endpoint.connect().await.expect("connects");
            deaf.push(connection.watch(&format!("{MAPS}?watch=1")).await.expect("watches"));
        }
        let mut connection = endpoint.connect().await.expect("connects");
        for number in 0..300 {
            let text = "x".repeat(50_000);
            let body = format!(r#"{{"metadata":{{"name":"big-{}"}},"data":{{"text":"{text}"}}}}"#, number);
            let made = connection.request("POST", MAPS, Some((JSON, body.as_bytes()))).await.expect("answers");
            assert_eq!(made.code, 201);
            let gone = connection.request("DELETE", &format!("{MAPS}/big-{number}"), None).await.expect("answers");
            assert_eq!(gone.code, 200);
        }
        serves(&endpoint, "deaf").await;

        let memory = conductor.memory();
        assert!(memory < 400, "it has {memory} MiB");
        // It ends with the limit for idle connections, which is longer than this test.
        trickle.abort();
        for stream in silent {
            is_closed(stream, "silent").await;
        }
    });
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}

#[test]
fn http_that_is_none_ends_its_connection_only() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    let head = |more: &str| format!("GET {MAPS} HTTP/1.1\r\nHost: x\r\n{more}\r\n").into_bytes();
    let long = "x".repeat(1_000_000);
    // What is sent, and the codes that may come back; 0 is a closed connection.
    let cases: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("noise", vec![0xff; 10_000], &[400, 0]),
        ("another protocol", b"EHLO example.com\r\n\r\n".to_vec(), &[400, 0]),
        ("a header of 1 MB", head(&format!("X: {long}\r\n")), &[431, 0]),
        ("10,000 headers", head(&"X: y\r\n".repeat(10_000)), &[431, 0]),
        ("a query of 1 MB", format!("GET {MAPS}?a={long} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes(), &[414, 431, 0]),
        ("a header with a line feed", head("X: a\nb\r\n"), &[400, 0]),
        ("a header without a name", head(": x\r\n"), &[400, 0]),
        ("two lengths", head("Content-Length: 1\r\nContent-Length: 2\r\n"), &[400, 0]),
        ("a length below zero", head("Content-Length: -1\r\n"), &[400, 0]),
        ("a length beyond all", head("Content-Length: 99999999999999999999\r\n"), &[400, 0]),
        ("a bad chunk", [head("Transfer-Encoding: chunked\r\n"), b"zz\r\nx".to_vec()].concat(), &[400, 0]),
        ("version 9", format!("GET {MAPS} HTTP/9.9\r\n\r\n").into_bytes(), &[400, 505, 0]),
        ("CONNECT", b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), &[400, 404, 405, 0]),
        ("an upgrade", head("Connection: Upgrade\r\nUpgrade: websocket\r\n"), &[200]),
    ];
    block_on(async {
        for (what, bytes, codes) in cases {
            let mut connection = endpoint.connect().await.expect("connects");
            // The server may stop listening before all of it is sent.
            let _ = connection.write(&bytes).await;
            let answered = tokio::time::timeout(Duration::from_secs(30), connection.head()).await;
            let code =
                answered.unwrap_or_else(|_| panic!("{what}: neither an answer nor an end")).map_or(0, |(code, _)| code);
            assert!(codes.contains(&code), "{what}: {code}");
        }
        serves(&endpoint, "after").await;
    });
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("is short").to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

#[test]
fn http2_floods_end_their_connection_only() {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    // `:method GET`, `:scheme https`, `:path /readyz`, `:authority x`, as literals where the static table has none.
    let mut request = vec![0x82, 0x87, 0x04, 7];
    request.extend_from_slice(b"/readyz");
    request.extend_from_slice(&[0x01, 1, b'x']);
    let stream = |number: u32| 2 * number + 1;
    let resets: Vec<u8> = (0..20_000)
        .flat_map(|n| {
            [frame(HEADERS, END_STREAM | END_HEADERS, stream(n), &request), frame(3, 0, stream(n), &[0, 0, 0, 8])]
                .concat()
        })
        .collect();
    let continuations: Vec<u8> = [frame(HEADERS, END_STREAM, 1, &request)]
        .into_iter()
        .chain((0..2_000).map(|_| frame(9, 0, 1, &[0x40, 1, b'a', 1, b'b'].repeat(1_000))))
        .flatten()
        .collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("noise", vec![0xaa; 100_000]),
        ("streams opened and reset", resets),
        ("headers without end", continuations),
        ("pings", frame(6, 0, 0, &[0; 8]).repeat(50_000)),
        ("settings", frame(SETTINGS, 0, 0, &[]).repeat(50_000)),
        ("empty data on no stream", frame(0, 0, 77, &[]).repeat(1_000)),
        ("a frame of 16 MB", [frame(0, 0, 1, &[])[3..].to_vec(), vec![0; 100_000]].concat()),
        ("a window beyond all", frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]).repeat(3)),
        ("a table that explodes", frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x3f, 0xe1, 0xff, 0xff, 0xff, 0x0f])),
    ];
    block_on(async {
        for (what, bytes) in cases {
            let mut connection = endpoint.stream(&[b"h2"]).await.expect("connects");
            assert_eq!(connection.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("is sent");
            connection.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("is sent");
            let (mut reader, mut writer) = tokio::io::split(connection);
            // Answers are taken, so that the server has no reason to wait.
            let reading = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
            let writing = async {
                let _ = writer.write_all(&bytes).await;
                let _ = writer.flush().await;
            };
            assert!(tokio::time::timeout(Duration::from_secs(60), writing).await.is_ok(), "{what}: it does not read");
            serves(&endpoint, "flooded").await;
            reading.abort();
        }
        // A good one still works, with the same bytes as above.
        let mut connection = endpoint.stream(&[b"h2"]).await.expect("connects");
        connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("is sent");
        connection.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("is sent");
        connection.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &request)).await.expect("is sent");
        let mut answer = Vec::new();
        while !answer.windows(2).any(|bytes| bytes == b"ok") {
            let read = connection.read_buf(&mut answer).await.expect("is answered");
            assert!(read > 0, "it was closed: {answer:?}");
        }
    });
    let memory = conductor.memory();
    assert!(memory < 400, "it has {memory} MiB");
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}

/// How many watches the server says there are.
async fn running(connection: &mut Connection) -> u32 {
    let metrics = connection.request("GET", "/metrics", None).await.expect("answers");
    let metrics = String::from_utf8_lossy(&metrics.body);
    let line = metrics.lines().find_map(|line| line.strip_prefix("apiserver_longrunning_requests "));
    line.and_then(|count| count.trim().parse().ok()).expect("is said")
}

#[test]
fn watches_that_nobody_reads_hold_little_of_large_objects() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    // `:method GET`, `:scheme https`, `:authority x`, `:path`, `accept`.
    let request = |accept: &str| {
        let path = format!("{MAPS}?watch=1");
        let mut block = vec![0x82, 0x87, 0x01, 1, b'x'];
        for (name, value) in [(&[0x04][..], path.as_str()), (&[0x0f, 0x04], accept)] {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).expect("is short"));
            block.extend_from_slice(value.as_bytes());
        }
        block
    };
    const WATCHES: u32 = 600;
    let (json, protobuf) = (request(JSON), request("application/vnd.kubernetes.protobuf"));
    block_on(async {
        let before = conductor.memory();
        let mut connection = endpoint.connect().await.expect("connects");
        let others = running(&mut connection).await;
        // It takes what comes and asks for no more: what the connection's first window lets through is little.
        let mut deaf = endpoint.stream(&[b"h2"]).await.expect("connects");
        deaf.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("is sent");
        deaf.write_all(&frame(4, 0, 0, &[])).await.expect("is sent");
        for number in 0..WATCHES {
            let block = if number % 2 == 0 { &json } else { &protobuf };
            deaf.write_all(&frame(1, 5, 2 * number + 1, block)).await.expect("is sent");
        }
        deaf.flush().await.expect("is sent");
        let there = tokio::spawn(async move {
            loop {
                let mut head = [0; 9];
                deaf.read_exact(&mut head).await.expect("goes on");
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                deaf.read_exact(&mut payload).await.expect("goes on");
                if (head[3], head[4]) == (6, 0) {
                    deaf.write_all(&frame(6, 1, 0, &payload)).await.expect("is sent");
                    deaf.flush().await.expect("is sent");
                }
            }
        });
        while running(&mut connection).await < others + WATCHES {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut reader =
            endpoint.connect().await.expect("connects").watch(&format!("{MAPS}?watch=1")).await.expect("watches");
        for number in 0..14_u8 {
            let text = char::from(b'a' + number).to_string().repeat(900_000);
            let body = format!(r#"{{"metadata":{{"name":"large"}},"data":{{"text":"{text}"}}}}"#);
            let (method, path) = match number {
                0 => ("POST", MAPS.to_owned()),
                _ => ("PUT", format!("{MAPS}/large")),
            };
            let made = connection.request(method, &path, Some((JSON, body.as_bytes()))).await.expect("answers");
            assert!(made.code < 300, "{}", made.code);
            // Who reads gets all of them.
            loop {
                let line = reader.line().await.expect("is read").expect("goes on");
                let event: serde_json::Value = serde_json::from_slice(&line).expect("an event");
                if event["object"]["metadata"]["name"] == "large" {
                    assert!(event["object"]["data"]["text"] == text.as_str());
                    break;
                }
            }
        }
        serves(&endpoint, "deaf").await;
        // A copy of one event for each would be 540 MB.
        let memory = conductor.memory().saturating_sub(before);
        println!("{WATCHES} watches hold {memory} MiB");
        assert!(memory < 300, "they hold {memory} MiB");
        assert!(running(&mut connection).await >= WATCHES && !there.is_finished(), "they are still there");
        there.abort();
    });
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}

#[test]
fn a_body_that_nobody_reads_does_not_cost_the_connection() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    block_on(async {
        let mut connection = endpoint.connect().await.expect("connects");
        // More than comes in one piece, to where the answer is known before the body has come.
        let body = vec![b' '; 200 * 1024];
        for (path, code) in [("/apis/nonsense/v1/things", 404), ("/version", 405), ("/api//v1", 400)] {
            for _ in 0..3 {
                let answer = connection.request("POST", path, Some((JSON, &body))).await;
                assert_eq!(answer.unwrap_or_else(|error| panic!("{path}: {error}")).code, code, "{path}");
            }
        }
    });
}

#[test]
fn lists_that_nobody_reads_are_no_more_than_so_much_and_give_way() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let mut conductor = Conductor::start(&directory.path().join("data"), &[]);
    let endpoint = conductor.endpoint.clone();
    block_on(async {
        for number in 0..32 {
            let text = "x".repeat(900_000);
            let body = format!(r#"{{"metadata":{{"name":"large-{number}"}},"data":{{"text":"{text}"}}}}"#);
            let made = endpoint.request("POST", MAPS, Some((JSON, body.as_bytes()))).await.expect("answers");
            assert_eq!(made.code, 201);
        }
        // The head is read, the rest is left.
        let ask = async || {
            let connection = endpoint.connect().await.expect("connects");
            connection.watch(MAPS).await.expect("answers")
        };
        let mut deaf = Vec::new();
        loop {
            let asked = ask().await;
            if asked.code == 429 {
                break;
            }
            assert_eq!(asked.code, 200);
            deaf.push(asked);
            assert!(deaf.len() < 80, "all of them are kept");
        }
        serves(&endpoint, "unread").await;
        let again = async {
            while ask().await.code != 200 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), again).await.is_ok(), "who reads nothing stays");
    });
    assert!(conductor.is_alive());
    assert!(!conductor.log().contains("panicked"), "{}", conductor.log());
}
