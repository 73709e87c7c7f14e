//! What a Pod has to do with its node: labels that say where it is, and how much of it there is.

use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::Value;

use super::quota::usage::pod_total;
use super::{Plugin, forbidden};
use crate::admission::{Attributes, Operation};

const NODES: &str = "core/nodes";
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// `PodTopologyLabels`: a Pod has the labels of its node that say where it is. Bindings give theirs to the Pod.
pub struct Topology;

impl Plugin for Topology {
    fn mutate(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        if attributes.operation != Operation::Create || &*attributes.resource.plural != "pods" {
            return Ok(());
        }
        let object = &attributes.object;
        let node = match attributes.subresource {
            "" => &object["spec"]["nodeName"],
            "binding" if object["target"]["kind"] == "Node" => &object["target"]["name"],
            _ => return Ok(()),
        };
        let Some(name) = node.as_str().filter(|name| !name.is_empty()) else { return Ok(()) };
        let Some(node) = attributes.view.object(NODES, name) else { return Ok(()) };
        for label in TOPOLOGY {
            if let Some(value) = node["metadata"]["labels"].get(label) {
                attributes.object["metadata"]["labels"][label] = value.clone();
            }
        }
        Ok(())
    }
}

/// `PodResizeValidator`: a Pod cannot become larger than its node.
pub struct Resize;

impl Plugin for Resize {
    fn validate(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (new, old) = (&attributes.object, attributes.old);
        if attributes.resource.gk() != ("", "Pod")
            || attributes.operation != Operation::Update
            || attributes.subresource != "resize"
            || new["metadata"]["generation"] == old["metadata"]["generation"]
        {
            return Ok(());
        }
        let Some(name) = new["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else { return Ok(()) };
        let Some(node) = attributes.view.object(NODES, name) else {
            return Err(forbidden(attributes, format!("node {name:?} not found")));
        };
        if let Some(system) = node["metadata"]["labels"]["kubernetes.io/os"].as_str().filter(|own| *own != "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
            return Err(forbidden(attributes, why).cause("UnsupportedPlatform", "", ""));
        }
        match too_large(new, &node["status"]["allocatable"]) {
            None => Ok(()),
            Some(why) => Err(forbidden(attributes, why).cause("NodeCapacity", "", "")),
        }
    }
}

/// What a Pod asks for beyond what a node has.
fn too_large(pod: &Value, allocatable: &Value) -> Option<String> {
    let wanted = pod_total(&pod["spec"], "requests");
    let mut lacks = Vec::new();
    for (name, shown) in [("cpu", Quantity::milli_value as fn(&Quantity) -> i64), ("memory", Quantity::value)] {
        let Some(wanted) = wanted.get(name).map(shown) else { continue };
        let there = Quantity::from_json(&allocatable[name]).map_or(0, |own| shown(&own));
        if wanted > there {
            lacks.push(format!("{name}, requested: {wanted}, allocatable: {there}"));
        }
    }
    let list = lacks.join("; ");
    (!lacks.is_empty()).then(|| format!("node didn't have enough allocatable resources: {list}"))
}
