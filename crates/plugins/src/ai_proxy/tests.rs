use crate::PLUGINS;
use weir_plugin::testing::check_cases;

#[test]
fn cases() {
    check_cases(PLUGINS, "ai-proxy", include_str!("cases.json"));
}
