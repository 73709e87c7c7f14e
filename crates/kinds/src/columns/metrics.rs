//! What a HorizontalPodAutoscaler measures and wants.

use serde_json::{Value, json};

use super::format::{number, quantity};
use super::{age, name};
use crate::value::{get, has, int, list, text};

pub(super) fn autoscaler(object: &Value, now: i64) -> Vec<Value> {
    let target = get(object, "spec.scaleTargetRef");
    vec![
        name(object),
        json!(format!("{}/{}", text(target, "kind"), text(target, "name"))),
        json!(targets(object)),
        json!(int(object, "spec.minReplicas").map_or_else(|| "<unset>".to_owned(), |number| number.to_string())),
        json!(number(object, "spec.maxReplicas")),
        json!(number(object, "status.currentReplicas")),
        age(object, now),
    ]
}

/// Up to two metrics, each as `measured/wanted`.
fn targets(object: &Value) -> String {
    let current = list(object, "status.currentMetrics");
    let metrics = list(object, "spec.metrics").iter().enumerate();
    let metrics = metrics.map(|(index, spec)| metric(spec, current.get(index).unwrap_or(&Value::Null)));
    let mut metrics: Vec<String> = metrics.collect();
    // autoscaling/v1 knows only this one.
    if let Some(wanted) = int(object, "spec.targetCPUUtilizationPercentage") {
        let measured = percentage(get(object, "status.currentCPUUtilizationPercentage"), "<unknown>");
        metrics.push(format!("cpu: {measured}/{wanted}%"));
    }
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let more = metrics.len().saturating_sub(2);
    metrics.truncate(2);
    let shown = metrics.join(", ");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

fn percentage(value: &Value, otherwise: &str) -> String {
    value.as_i64().map_or_else(|| otherwise.to_owned(), |percent| format!("{percent}%"))
}

fn metric(spec: &Value, current: &Value) -> String {
    let field = match text(spec, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, current) = (get(spec, field), get(current, field));
    let target = get(spec, "target");
    let average = has(target, "averageValue");
    let measured = |value: &str| match current.is_null() {
        true => "<unknown>".to_owned(),
        false => quantity(get(get(current, "current"), value)),
    };
    let wanted = |value: &str| quantity(get(target, value));
    match field {
        "pods" => format!("{}/{}", measured("averageValue"), wanted("averageValue")),
        "external" | "object" if average => {
            let measured = match has(current, "current.averageValue") {
                true => measured("averageValue"),
                false => "<unknown>".to_owned(),
            };
            format!("{measured}/{} (avg)", wanted("averageValue"))
        }
        "external" | "object" => format!("{}/{}", measured("value"), wanted("value")),
        _ if average => format!("{}: {}/{}", text(spec, "name"), measured("averageValue"), wanted("averageValue")),
        _ => {
            let measured = percentage(get(current, "current.averageUtilization"), "<unknown>");
            let wanted = percentage(get(target, "averageUtilization"), "<auto>");
            format!("{}: {measured}/{wanted}", text(spec, "name"))
        }
    }
}
