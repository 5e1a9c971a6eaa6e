//! What recorded A/A controls say of the noise, and of what shows in spite of it.

use weirlab::power;

#[test]
fn noise_is_what_the_control_differs_by() {
    let case = crate::sample::case("kong/plain-1", "http");
    let mut control =
        crate::sample::cell(&case, "weir (again)", 3, |round| [11.0, 10.0, 50.0][round as usize]);
    control.control = true;
    control.blocks[2].void = Some("late".to_owned());
    let baseline = crate::sample::cell(&case, "weir", 3, |_| 10.0);
    let other = crate::sample::cell(&case, "nginx", 3, |_| 20.0);
    let noise = power::noise(&crate::sample::run(vec![case], vec![baseline, control, other]));
    assert_eq!(noise.len(), 2, "{noise:?}");
    assert!((noise[0] - 1.1_f64.ln()).abs() < 1e-3 && noise[1].abs() < 1e-3, "{noise:?}");
}

#[test]
fn more_pairs_show_more() {
    let noise: Vec<f64> = (0..40).map(|n| 0.05 * (f64::from(n) * 2.4).sin()).collect();
    let (few, many) = (power::power(&noise, 0.05, 6, 1), power::power(&noise, 0.05, 60, 1));
    assert!(few < many && many > 0.95, "{few} {many}");
}
