//! Jobs and what starts them.

use serde_json::{Value, json};

use super::format::{containers, number, selector};
use super::{AGE, CONTAINERS, Column, IMAGES, NAME, Printer, SELECTOR, age, condition, is_being_deleted, name, time};
use crate::value::{get, has, int, list, text};

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            Column::text("Status", "How it is."),
            Column::text("Completions", "Pods that succeeded of those that must."),
            Column::text("Duration", "How long it ran or has been running."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: job,
    },
    Printer {
        group: "batch",
        kind: "CronJob",
        columns: &[
            NAME,
            Column::text("Schedule", "When it starts a job."),
            Column::text("Timezone", "The zone of its schedule."),
            Column::boolean("Suspend", "Whether it starts none for now."),
            Column::integer("Active", "Jobs that are running."),
            Column::text("Last Schedule", "When it last started a job."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        cells: cron_job,
    },
];

fn job(object: &Value, now: i64) -> Vec<Value> {
    let succeeded = number(object, "status.succeeded");
    let completions = match (int(object, "spec.completions"), number(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = match time::at(object, "status.startTime") {
        Some(start) => time::ago(start, time::at(object, "status.completionTime").unwrap_or(now)),
        None => String::new(),
    };
    let [names, images] = containers(object, "spec.template.spec");
    vec![
        name(object),
        json!(status(object)),
        json!(completions),
        json!(duration),
        age(object, now),
        names,
        images,
        json!(selector(object, "spec.selector")),
    ]
}

fn status(object: &Value) -> &'static str {
    let holds = |of: &&&str| {
        condition(object, "status.conditions", of).is_some_and(|condition| text(condition, "status") == "True")
    };
    if let Some(end) = ["Complete", "Failed"].iter().find(holds) {
        return end;
    }
    if is_being_deleted(object) {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].iter().find(holds).unwrap_or(&"Running")
}

fn cron_job(object: &Value, now: i64) -> Vec<Value> {
    let last = match has(object, "status.lastScheduleTime") {
        true => time::since(object, "status.lastScheduleTime", now),
        false => "<none>".to_owned(),
    };
    let suspended = match get(object, "spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(object, "spec.jobTemplate.spec.template.spec");
    vec![
        name(object),
        json!(text(object, "spec.schedule")),
        json!(get(object, "spec.timeZone").as_str().unwrap_or("<none>")),
        json!(suspended),
        json!(list(object, "status.active").len()),
        json!(last),
        age(object, now),
        names,
        images,
        json!(selector(object, "spec.jobTemplate.spec.selector")),
    ]
}
