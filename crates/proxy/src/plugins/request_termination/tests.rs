//! request-termination over exchanges in memory.

#[test]
fn cases() {
    crate::testing::check_cases("request-termination", include_str!("cases.json"));
}
