//! When something may be called faster or slower.
use super::pairs::{Effect, Ratio};
use crate::result::{Cell, Status};
use serde::Serialize;

/// By how much two runs of the same binary may differ where there is no control: 10 %.
pub const FLOOR_WITHOUT_CONTROL: f64 = 0.10;

/// An interval that lies within such a distance of 1 says that two targets cost the same.
pub const SAME: f64 = 0.05;

/// With fewer pairs the interval of an A/A control is too wide to say anything of the machine's noise.
pub const MIN_JUDGED_PAIRS: usize = 3;

/// The A/A control: what the same binary differs from itself by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// The control over the baseline; none where either was not measured.
    pub control: Option<Effect>,
    /// Effects up to this (0.03 for 3 %) could be noise: the end of the control's interval that is farther from 1.
    pub floor: f64,
}

impl Noise {
    pub(super) fn of(cells: &[&Cell], ratios: &[Vec<Ratio>], baseline: &str) -> Noise {
        let control = cells.iter().zip(ratios).find(|(cell, _)| cell.control);
        let control = control.and_then(|(_, ratios)| cpu_to(ratios, baseline));
        Noise { control, floor: control.map_or(FLOOR_WITHOUT_CONTROL, |effect| distance(&effect)) }
    }

    /// Whether the floor says something: of a control with enough pairs, or without a control.
    pub fn is_judged(&self) -> bool {
        self.control.is_none_or(|effect| effect.ratio.samples >= MIN_JUDGED_PAIRS)
    }

    /// Whether the control's interval contains 1, as it should in 19 of 20 runs; none without a control.
    pub fn contains_one(&self) -> Option<bool> {
        self.control.map(|effect| effect.ratio.contains(1.0))
    }
}

/// How a target stands to the baseline, by CPU per request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "what")]
pub enum Verdict {
    /// It is the baseline.
    Baseline,
    /// It is the baseline once more.
    Control,
    /// It needs less CPU: the interval lies below 1 and the ratio itself is below what noise explains.
    Faster,
    /// It needs more.
    Slower,
    /// It needs the same, within this share (0.03 for ± 3 %): the whole interval lies within it.
    Same(f64),
    /// The samples are inconclusive; why.
    CannotTell(String),
    /// There are no samples; why.
    NotMeasured(String),
}

impl Verdict {
    pub(super) fn of(cell: &Cell, ratios: &[Ratio], baseline: &str, noise: &Noise) -> Verdict {
        match &cell.status {
            Status::Measured => {}
            Status::Skipped(why) | Status::Different(why) | Status::Failed(why) | Status::Unmeasured(why) => {
                return Verdict::NotMeasured(why.clone());
            }
        }
        if cell.control {
            return Verdict::Control;
        }
        if cell.target == baseline {
            return Verdict::Baseline;
        }
        match cpu_to(ratios, baseline) {
            Some(effect) => judge(&effect, noise.floor),
            None => Verdict::CannotTell(format!("no round has CPU time of both it and {baseline}")),
        }
    }

    /// In a few words.
    pub fn words(&self) -> String {
        match self {
            Verdict::Baseline => "baseline".to_owned(),
            Verdict::Control => "A/A control".to_owned(),
            Verdict::Faster => "faster".to_owned(),
            Verdict::Slower => "slower".to_owned(),
            Verdict::Same(within) => format!("same within ±{:.1} %", within * 100.0),
            Verdict::CannotTell(_) => "cannot tell".to_owned(),
            Verdict::NotMeasured(_) => "not measured".to_owned(),
        }
    }
}

fn cpu_to(ratios: &[Ratio], target: &str) -> Option<Effect> {
    ratios.iter().find(|ratio| ratio.to == target)?.cpu
}

/// How far from 1 the interval reaches, upwards or downwards alike: ×1.25 and ×0.8 are equally far.
fn distance(effect: &Effect) -> f64 {
    effect.ratio.low.ln().abs().max(effect.ratio.high.ln().abs()).exp_m1()
}

pub(crate) fn judge(effect: &Effect, floor: f64) -> Verdict {
    let ratio = &effect.ratio;
    let beyond_noise = ratio.value.ln().abs() > floor.ln_1p();
    if !ratio.contains(1.0) && beyond_noise {
        return if ratio.value < 1.0 { Verdict::Faster } else { Verdict::Slower };
    }
    let within = distance(effect);
    if within <= SAME {
        return Verdict::Same(within);
    }
    Verdict::CannotTell(if !effect.detectable.is_finite() {
        "too few pairs of blocks count to distinguish an effect from noise".to_owned()
    } else if ratio.contains(1.0) {
        format!("effects below {:.0} % would not have shown", effect.detectable * 100.0)
    } else if floor.is_finite() {
        format!("the same binary differs from itself by up to {:.0} %", floor * 100.0)
    } else {
        "the A/A control has too few pairs of blocks".to_owned()
    })
}
