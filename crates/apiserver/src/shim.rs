//! Stands in for what is not there yet.
pub mod validate {
    use machinery::field::Errors;
    use serde_json::Value;
    pub fn create(_: &str, _: &str, _: &Value) -> Errors {
        Vec::new()
    }
    pub fn update(_: &str, _: &str, _: &Value, _: &Value) -> Errors {
        Vec::new()
    }
    pub fn status_update(_: &str, _: &str, _: &Value, _: &Value) -> Errors {
        Vec::new()
    }
    pub fn name_rule(_: &str, _: &str) -> machinery::names::NameRule {
        machinery::names::name_is_subdomain
    }
}
pub mod warnings {
    use serde_json::Value;
    pub fn create(_: &str, _: &str, _: &Value) -> Vec<String> {
        Vec::new()
    }
    pub fn update(_: &str, _: &str, _: &Value, _: &Value) -> Vec<String> {
        Vec::new()
    }
}
