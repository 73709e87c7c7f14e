//! Writes that belong to a write: what an object reserves or gives back.

use std::collections::BTreeSet;

use machinery::status::Status;
use serde_json::Value;
use store::{Expect, Op};

use crate::context::Context;
use crate::plan::View;

/// What services have allocated, one key each, so that no two commits can allocate the same.
const ADDRESSES: &str = "allocations/addresses";
const PORTS: &str = "allocations/nodeports";

/// Writes that belong to a write: addresses and ports that a Service takes or gives back.
pub fn side_writes(cx: &Context, _view: &View<'_>, old: &Value, new: &Value, ops: &mut Vec<Op>) -> Result<(), Status> {
    if cx.resource.gk() != ("", "Service") {
        return Ok(());
    }
    for (table, held) in [(ADDRESSES, addresses as fn(&Value) -> BTreeSet<String>), (PORTS, ports)] {
        let (before, after) = (held(old), held(new));
        for key in after.difference(&before) {
            ops.push(Op::put(table, key.as_str(), Vec::from(cx.info.name.as_bytes()), Expect::Absent));
        }
        for key in before.difference(&after) {
            ops.push(Op::delete(table, key.as_str(), Expect::Any));
        }
    }
    Ok(())
}

fn addresses(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    list.filter(|ip| !ip.is_empty() && *ip != "None").map(str::to_owned).collect()
}

fn ports(service: &Value) -> BTreeSet<String> {
    let list = service["spec"]["ports"].as_array().into_iter().flatten();
    let mut ports: BTreeSet<String> = list
        .filter_map(|port| {
            let number = port["nodePort"].as_i64().filter(|number| *number != 0)?;
            Some(format!("{}/{number}", port["protocol"].as_str().unwrap_or("TCP")))
        })
        .collect();
    if let Some(number) = service["spec"]["healthCheckNodePort"].as_i64().filter(|number| *number != 0) {
        ports.insert(format!("TCP/{number}"));
    }
    ports
}
