//! HorizontalPodAutoscalers: stored as `autoscaling/v2` has them. `v1` knows one metric, the share of requested CPU; what
//! else there is stands in its annotations, as JSON.

use serde_json::{Map, Value, json};

use crate::value::{get, has, int, list, object_mut, remove, set, size, text};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The share of requested CPU that is aimed at when nothing is said.
const CPU: i64 = 80;

pub(super) fn to_v2(autoscaler: &mut Value) {
    let [metrics, current, conditions, behavior] =
        [METRICS, CURRENT, CONDITIONS, BEHAVIOR].map(|name| take_annotation(autoscaler, name));
    let mut wanted: Vec<Value> = items(metrics).iter().map(wanted_to_v2).collect();
    let cpu = int(autoscaler, "spec.targetCPUUtilizationPercentage");
    if cpu.is_some() || wanted.is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": cpu.unwrap_or(CPU)});
        wanted.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    remove(autoscaler, "spec", "targetCPUUtilizationPercentage");
    set(autoscaler, "spec", "metrics", wanted);
    if let Some(behavior) =
        behavior.map(lower_case).filter(|behavior| has(behavior, "scaleUp") || has(behavior, "scaleDown"))
    {
        set(autoscaler, "spec", "behavior", behavior);
    }
    let measured = int(autoscaler, "status.currentCPUUtilizationPercentage");
    remove(autoscaler, "status", "currentCPUUtilizationPercentage");
    let current: Vec<Value> = match (current, measured) {
        (Some(Value::Array(current)), _) => current.iter().map(measured_to_v2).collect(),
        (_, Some(measured)) => {
            vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": measured}}})]
        }
        _ => Vec::new(),
    };
    if !current.is_empty() {
        set(autoscaler, "status", "currentMetrics", current);
    }
    if let Some(conditions @ Value::Array(_)) = conditions {
        set(autoscaler, "status", "conditions", conditions);
    }
}

/// Takes away what only `v1` has annotations for.
pub(crate) fn drop_annotations(autoscaler: &mut Value) {
    let tolerances =
        ["scale-down-tolerance", "scale-up-tolerance"].map(|name| format!("autoscaling.alpha.kubernetes.io/{name}"));
    for name in [METRICS, CURRENT, CONDITIONS, BEHAVIOR].into_iter().chain(tolerances.iter().map(String::as_str)) {
        take_annotation(autoscaler, name);
    }
}

pub(super) fn to_v1(autoscaler: &mut Value) {
    drop_annotations(autoscaler);
    let metrics = list(autoscaler, "spec.metrics").to_vec();
    let share = |metric: &Value| match (text(metric, "type"), text(metric, "resource.name")) {
        ("Resource", "cpu") => int(metric, "resource.target.averageUtilization"),
        _ => None,
    };
    if let Some(cpu) = metrics.iter().find_map(share) {
        set(autoscaler, "spec", "targetCPUUtilizationPercentage", cpu);
    }
    let current = list(autoscaler, "status.currentMetrics").to_vec();
    let measured = current.iter().filter(|metric| text(metric, "type") == "Resource");
    let measured = measured.filter(|metric| text(metric, "resource.name") == "cpu");
    if let Some(cpu) = measured.filter_map(|metric| int(metric, "resource.current.averageUtilization")).next_back() {
        set(autoscaler, "status", "currentCPUUtilizationPercentage", cpu);
    }
    let others: Vec<String> = metrics.iter().filter(|metric| share(metric).is_none()).map(wanted_to_v1).collect();
    let measured: Vec<String> = current.iter().map(measured_to_v1).collect();
    let conditions: Vec<String> = list(autoscaler, "status.conditions").iter().map(condition).collect();
    for (name, list) in [(METRICS, others), (CURRENT, measured), (CONDITIONS, conditions)] {
        if !list.is_empty() {
            annotate(autoscaler, name, &format!("[{}]", list.join(",")));
        }
    }
    let behavior = get(autoscaler, "spec.behavior").clone();
    if !behavior.is_null() {
        let rules = |name| scaling_rules(get(&behavior, name));
        let text = format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"));
        annotate(autoscaler, BEHAVIOR, &text);
    }
    for (path, key) in
        [("spec", "metrics"), ("spec", "behavior"), ("status", "currentMetrics"), ("status", "conditions")]
    {
        remove(autoscaler, path, key);
    }
}

fn take_annotation(autoscaler: &mut Value, name: &str) -> Option<Value> {
    let text = crate::value::annotation(autoscaler, name)?.to_owned();
    remove(autoscaler, "metadata.annotations", name);
    if size(autoscaler, "metadata.annotations") == 0 {
        remove(autoscaler, "metadata", "annotations");
    }
    serde_json::from_str(&text).ok()
}

/// Go writes these three as escapes within strings, the only place where they stand in JSON.
fn annotate(autoscaler: &mut Value, name: &str, json: &str) {
    let text = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    if let Some(annotations) = object_mut(autoscaler, "metadata.annotations") {
        annotations.insert(name.to_owned(), text.into());
    }
}

fn items(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Only fields that are there.
fn present<const N: usize>(fields: [(&str, &Value); N]) -> Value {
    let there = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(name, value)| (name.to_owned(), value.clone())).collect::<Map<_, _>>())
}

fn wanted_to_v2(metric: &Value) -> Value {
    let mut out = json!({"type": text(metric, "type")});
    for field in ["object", "pods", "resource", "containerResource", "external"] {
        let v1 = get(metric, field);
        if v1.is_null() {
            continue;
        }
        let at = |name: &str| get(v1, name);
        let named = |selector: &str| present([("name", at("metricName")), ("selector", at(selector))]);
        let target = |kind: &str, value: &Value, average: &Value, share: &Value| {
            present([
                ("type", &json!(kind)),
                ("value", value),
                ("averageValue", average),
                ("averageUtilization", share),
            ])
        };
        let none = &Value::Null;
        let either = |there: bool, this: &'static str, that: &'static str| if there { this } else { that };
        out[field] = match field {
            "object" => {
                let average = !at("averageValue").is_null();
                // `v1` cannot leave the value out, and writes 0.
                let value = if average && text(v1, "targetValue") == "0" { none } else { at("targetValue") };
                let target = target(either(average, "AverageValue", "Value"), value, at("averageValue"), none);
                json!({"describedObject": at("target"), "metric": named("selector"), "target": target})
            }
            "pods" => {
                json!({"metric": named("selector"), "target": target("AverageValue", none, at("targetAverageValue"), none)})
            }
            "external" => {
                let kind = either(at("targetValue").is_null(), "AverageValue", "Value");
                let target = target(kind, at("targetValue"), at("targetAverageValue"), none);
                json!({"metric": named("metricSelector"), "target": target})
            }
            _ => {
                let share = at("targetAverageUtilization");
                let target = target(
                    either(share.is_null(), "AverageValue", "Utilization"),
                    none,
                    at("targetAverageValue"),
                    share,
                );
                present([("name", at("name")), ("container", at("container")), ("target", &target)])
            }
        };
    }
    out
}

fn measured_to_v2(metric: &Value) -> Value {
    let mut out = json!({"type": text(metric, "type")});
    for field in ["object", "pods", "resource", "containerResource", "external"] {
        let v1 = get(metric, field);
        if v1.is_null() {
            continue;
        }
        let at = |name: &str| get(v1, name);
        let named = |selector: &str| present([("name", at("metricName")), ("selector", at(selector))]);
        let none = &Value::Null;
        let current = |value: &Value, average: &Value, share: &Value| {
            present([("value", value), ("averageValue", average), ("averageUtilization", share)])
        };
        out[field] = match field {
            "object" => json!({
                "describedObject": at("target"), "metric": named("selector"),
                "current": current(at("currentValue"), at("averageValue"), none),
            }),
            "pods" => json!({"metric": named("selector"), "current": current(none, at("currentAverageValue"), none)}),
            "external" => json!({
                "metric": named("metricSelector"),
                "current": current(at("currentValue"), at("currentAverageValue"), none),
            }),
            _ => present([
                ("name", at("name")),
                ("container", at("container")),
                ("current", &current(none, at("currentAverageValue"), at("currentAverageUtilization"))),
            ]),
        };
    }
    out
}

/// A JSON object with its fields in this order, as Go writes it; empty ones are left out.
fn object<const N: usize>(fields: [(&str, String); N]) -> String {
    let fields = fields.into_iter().filter(|(_, json)| !json.is_empty());
    let fields: Vec<String> = fields.map(|(name, json)| format!("\"{name}\":{json}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// JSON of a value; nothing if there is none.
fn maybe(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

fn or_empty(value: &Value) -> String {
    if value.is_null() { "\"\"".to_owned() } else { value.to_string() }
}

fn or_zero(value: &Value) -> String {
    if value.is_null() { "\"0\"".to_owned() } else { value.to_string() }
}

fn selector(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let expressions: Vec<String> = list(value, "matchExpressions")
        .iter()
        .map(|one| {
            object([
                ("key", or_empty(get(one, "key"))),
                ("operator", or_empty(get(one, "operator"))),
                ("values", maybe(get(one, "values"))),
            ])
        })
        .collect();
    let expressions = if expressions.is_empty() { String::new() } else { format!("[{}]", expressions.join(",")) };
    object([("matchLabels", maybe(get(value, "matchLabels"))), ("matchExpressions", expressions)])
}

fn reference(value: &Value) -> String {
    object([
        ("kind", or_empty(get(value, "kind"))),
        ("name", or_empty(get(value, "name"))),
        ("apiVersion", maybe(get(value, "apiVersion"))),
    ])
}

fn metric(metric: &Value, describe: fn(&str, &Value) -> String) -> String {
    let described = |field: &str| match get(metric, field) {
        Value::Null => String::new(),
        source => describe(field, source),
    };
    object([
        ("type", or_empty(get(metric, "type"))),
        ("object", described("object")),
        ("pods", described("pods")),
        ("resource", described("resource")),
        ("containerResource", described("containerResource")),
        ("external", described("external")),
    ])
}

fn wanted_to_v1(wanted: &Value) -> String {
    metric(wanted, |field, source| {
        let at = |name: &str| get(source, name);
        let name = ("metricName", or_empty(at("metric.name")));
        let select = selector(at("metric.selector"));
        match field {
            "object" => object([
                ("target", reference(at("describedObject"))),
                name,
                ("targetValue", or_zero(at("target.value"))),
                ("selector", select),
                ("averageValue", maybe(at("target.averageValue"))),
            ]),
            "pods" => object([name, ("targetAverageValue", or_zero(at("target.averageValue"))), ("selector", select)]),
            "external" => object([
                name,
                ("metricSelector", select),
                ("targetValue", maybe(at("target.value"))),
                ("targetAverageValue", maybe(at("target.averageValue"))),
            ]),
            _ => object([
                ("name", or_empty(at("name"))),
                ("targetAverageUtilization", maybe(at("target.averageUtilization"))),
                ("targetAverageValue", maybe(at("target.averageValue"))),
                ("container", if field == "resource" { String::new() } else { or_empty(at("container")) }),
            ]),
        }
    })
}

fn measured_to_v1(measured: &Value) -> String {
    metric(measured, |field, source| {
        let at = |name: &str| get(source, name);
        let name = ("metricName", or_empty(at("metric.name")));
        let select = selector(at("metric.selector"));
        match field {
            "object" => object([
                ("target", reference(at("describedObject"))),
                name,
                ("currentValue", or_zero(at("current.value"))),
                ("selector", select),
                ("averageValue", maybe(at("current.averageValue"))),
            ]),
            "pods" => {
                object([name, ("currentAverageValue", or_zero(at("current.averageValue"))), ("selector", select)])
            }
            "external" => object([
                name,
                ("metricSelector", select),
                ("currentValue", or_zero(at("current.value"))),
                ("currentAverageValue", maybe(at("current.averageValue"))),
            ]),
            _ => object([
                ("name", or_empty(at("name"))),
                ("currentAverageUtilization", maybe(at("current.averageUtilization"))),
                ("currentAverageValue", or_zero(at("current.averageValue"))),
                ("container", if field == "resource" { String::new() } else { or_empty(at("container")) }),
            ]),
        }
    })
}

fn condition(condition: &Value) -> String {
    let maybe_text =
        |name: &str| if text(condition, name).is_empty() { String::new() } else { maybe(get(condition, name)) };
    object([
        ("type", or_empty(get(condition, "type"))),
        ("status", or_empty(get(condition, "status"))),
        ("lastTransitionTime", get(condition, "lastTransitionTime").to_string()),
        ("reason", maybe_text("reason")),
        ("message", maybe_text("message")),
    ])
}

/// Scaling rules with the names that Go's structures have.
fn scaling_rules(rules: &Value) -> String {
    if rules.is_null() {
        return "null".to_owned();
    }
    let policies: Vec<String> = list(rules, "policies")
        .iter()
        .map(|policy| {
            object([
                ("Type", or_empty(get(policy, "type"))),
                ("Value", int(policy, "value").unwrap_or(0).to_string()),
                ("PeriodSeconds", int(policy, "periodSeconds").unwrap_or(0).to_string()),
            ])
        })
        .collect();
    let policies = if has(rules, "policies") { format!("[{}]", policies.join(",")) } else { "null".to_owned() };
    object([
        ("StabilizationWindowSeconds", get(rules, "stabilizationWindowSeconds").to_string()),
        ("SelectPolicy", get(rules, "selectPolicy").to_string()),
        ("Policies", policies),
        ("Tolerance", get(rules, "tolerance").to_string()),
    ])
}

/// The other way: names of Go's structures become those of the API.
fn lower_case(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| {
                    let mut letters = name.chars();
                    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                    (first.into_iter().chain(letters).collect(), lower_case(value))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(lower_case).collect()),
        value => value,
    }
}
