//! request-termination over exchanges in memory.

#[test]
fn cases() {
    crate::plugin::testing::check_cases(
        crate::plugins::PLUGINS,
        "request-termination",
        include_str!("cases.json"),
    );
}
