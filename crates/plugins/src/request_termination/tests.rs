//! request-termination over exchanges in memory.

#[test]
fn cases() {
    weir_plugin::testing::check_cases(crate::PLUGINS, "request-termination", include_str!("cases.json"));
}
