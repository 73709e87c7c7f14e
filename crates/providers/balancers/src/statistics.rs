//! What HAProxy counts, as a status can hold it. Pure.

use serde_json::{Value, json};

/// How many backends, and servers of each, are shown: a status has to hold them.
const SHOWN: (usize, usize) = (200, 20);

/// Reads `show stat`: every backend with its servers and how they are, and the totals.
pub fn statistics(csv: &str) -> (Value, Value) {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
    let column = |name: &str| header.iter().position(|h| *h == name);
    let (proxy, server, status) = (column("pxname"), column("svname"), column("status"));
    let mut backends: Vec<(String, Vec<Value>)> = Vec::new();
    let (mut requests, mut sessions, mut failures) = (0u64, 0u64, 0u64);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |at: Option<usize>| at.and_then(|at| fields.get(at)).copied().unwrap_or_default();
        let count = |name: &str| field(column(name)).parse::<u64>().unwrap_or(0);
        match field(server) {
            "" => {}
            "FRONTEND" => {
                sessions += count("stot");
                requests += count("req_tot");
                failures += count("hrsp_5xx");
            }
            "BACKEND" => {}
            server => {
                let entry = json!({"server": server, "state": field(status)});
                // those of one backend come one after the other
                match backends.last_mut() {
                    Some((name, servers)) if name == field(proxy) => servers.push(entry),
                    _ => backends.push((field(proxy).to_owned(), vec![entry])),
                }
            }
        }
    }
    let left = backends.len().saturating_sub(SHOWN.0);
    let shown = backends.into_iter().take(SHOWN.0).map(|(name, mut servers)| {
        let left = servers.len().saturating_sub(SHOWN.1);
        servers.truncate(SHOWN.1);
        json!({"name": name, "servers": but_for(servers, left)})
    });
    (
        Value::Array(but_for(shown.collect(), left)),
        json!({"sessions": sessions, "requests": requests, "serverErrors": failures}),
    )
}

/// A list that says how many are not in it.
fn but_for(mut shown: Vec<Value>, left: usize) -> Vec<Value> {
    if left > 0 {
        shown.push(json!({"more": left}));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_fit_into_a_status() {
        let server = |n: usize, m: usize| format!("backend-{n:0>60},server-{m:0>60},1,0,UP,,\n");
        let mut csv = "# pxname,svname,stot,hrsp_5xx,status,req_tot,\n".to_owned();
        for n in 0..2000 {
            csv.extend((0..50).map(|m| server(n, m)));
        }
        let (backends, _) = statistics(&csv);
        let all = backends.as_array().expect("a list");
        assert_eq!((all.len(), &all[200]), (201, &json!({"more": 1800})));
        assert_eq!(all[0]["servers"][20], json!({"more": 30}));
        assert!(backends.to_string().len() < 500 << 10);
    }

    #[test]
    fn statistics_are_read() {
        let csv = "# pxname,svname,stot,hrsp_5xx,status,req_tot,\n\
            http,FRONTEND,7,1,OPEN,9,\nb,s1,3,0,UP,,\nb,s2,4,0,DOWN,,\nb,BACKEND,7,0,UP,,\n\n";
        let (backends, totals) = statistics(csv);
        assert_eq!(
            backends,
            json!([{"name": "b", "servers": [
            {"server": "s1", "state": "UP"}, {"server": "s2", "state": "DOWN"}]}])
        );
        assert_eq!(totals, json!({"sessions": 7, "requests": 9, "serverErrors": 1}));
        assert_eq!(statistics("").0, json!([]));
    }
}
