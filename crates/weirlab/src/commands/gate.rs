//! `weirlab gate`.
use super::measuring::{self, Common};
use crate::analysis::{Sample, Usable, usable};
use crate::gate::decide::{Decision, Finding, Pair, Rule, old_cost};
use crate::result::{Cell, Run};
use crate::session::contenders;
use crate::session::{Assignment, Entry, Profile, Session};
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The version that is known to be good: `git:main`, a tag, `worktree`, a path to a binary
    pub base: String,
    /// The version in question
    pub head: String,
    /// The slowdown that must not be missed, in CPU time per request
    #[arg(long, default_value = "5%", value_parser = percentage)]
    pub effect: f64,
    /// The scenario
    #[arg(long, default_value = "kong/plain-1")]
    pub scenario: String,
    /// `http`, `https`, `h2` or `h2c`
    #[arg(long, default_value = "http", value_parser = ["http", "https", "h2", "h2c"])]
    pub scheme: String,
    /// The longest that one series of blocks may take
    #[arg(long, default_value = "10m", value_parser = crate::duration::some)]
    pub limit: Duration,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// Rounds that the progress bar expects.
const USUAL_ROUNDS: u32 = 16;

/// Measures both versions until it can tell; exit code 0 pass, 1 regression, 2 cannot tell.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = measuring::interruptible()?;
    let rule = Rule { effect: args.effect, seed: args.common.seed.unwrap_or(1) };
    let mut session =
        Session::open(assignment(&args)?, USUAL_ROUNDS, &stop).map_err(|error| error.to_string())?;
    let first = series(&mut session, args.limit, |run, time_is_left| {
        rule.first(&pairs(run, 0..u32::MAX), &control_pairs(run), time_is_left)
    })?;
    let finding = if first.decision == Decision::Regression && first.ratio.is_some() && !session.stopped() {
        session.progress.line(&format!("{}: measuring again to be sure", sentence(&first, args.effect)));
        let begins = session.rounds_done();
        series(&mut session, args.limit, |run, time_is_left| {
            let (before, after) = (pairs(run, 0..begins), pairs(run, begins..u32::MAX));
            rule.second(&before, &after, &control_pairs(run), time_is_left)
        })?
    } else if session.stopped() {
        Finding { decision: Decision::CannotTell, ..first }
    } else {
        first
    };
    let (run, folder) = session.close().map_err(|error| error.to_string())?;
    measuring::conclude(&run, &folder, &args.common)?;
    let verdict = sentence(&finding, args.effect);
    // Not among figures that a program reads.
    let _ = match args.common.format.is_for_people() {
        true => writeln!(io::stdout(), "\n{verdict}"),
        false => writeln!(io::stderr(), "{verdict}"),
    };
    Ok(code(&finding, &run))
}

/// The cells of a gate, in the order of its contenders.
const BASE: usize = 0;
const CONTROL: usize = 1;
const HEAD: usize = 2;

fn assignment(args: &Args) -> Result<Assignment, String> {
    let catalogue = args.common.catalogue()?;
    let versions = [args.base.clone(), args.head.clone()];
    let mut contenders = args.common.contenders(&[], &versions)?;
    contenders.insert(CONTROL, contenders::control(&contenders[BASE]));
    if contenders[BASE].label == contenders[HEAD].label {
        contenders[HEAD].label.push_str(" (in question)");
    }
    let case = measuring::single(&args.scenario, &measuring::schemes(Some(&args.scheme)), &catalogue)?;
    let profile = Profile::named("quick").ok_or("there is no profile quick")?;
    let entries = vec![Entry { case, contenders: vec![BASE, CONTROL, HEAD] }];
    args.common.assignment("gate", contenders, entries, profile)
}

/// Adds rounds until the rule decides.
fn series(
    session: &mut Session<'_>,
    limit: Duration,
    judge: impl Fn(&Run, bool) -> Finding,
) -> Result<Finding, String> {
    let begun = Instant::now();
    loop {
        session.rounds(2).map_err(|error| error.to_string())?;
        let unfit = session.result().cells.iter().find(|cell| cell.status != crate::result::Status::Measured);
        if let Some(cell) = unfit {
            return Err(format!("{} cannot be measured on {}; see the lines above", cell.case, cell.target));
        }
        if let Some(why) = wrong_answers(session.result()) {
            session.progress.line(&why);
            return Ok(Finding { decision: Decision::Regression, ratio: None, doubt: None });
        }
        let time_is_left = begun.elapsed() < limit && !session.stopped();
        let finding = judge(session.result(), time_is_left);
        if finding.decision != Decision::Continue {
            return Ok(finding);
        }
    }
}

/// So many blocks with wrong or missing answers, where the base has none, are no accident.
const TOO_MANY_FAILURES: usize = 3;

fn wrong_answers(run: &Run) -> Option<String> {
    let wrong =
        |cell: &Cell| cell.blocks.iter().filter(|block| matches!(usable(block), Usable::Invalid(_))).count();
    let (base, head) = (wrong(&run.cells[BASE]), wrong(&run.cells[HEAD]));
    (base == 0 && head >= TOO_MANY_FAILURES)
        .then(|| format!("{} answers wrongly or not at all in {head} blocks", run.cells[HEAD].target))
}

/// CPU per request of the old version and of the one in question, round by round.
fn pairs(run: &Run, rounds: Range<u32>) -> Vec<Pair> {
    let pair = |round| {
        let [base, control, head] = [BASE, CONTROL, HEAD].map(|cell| cost(&run.cells[cell], round));
        Some((old_cost(base, control)?, head?))
    };
    measured(run, rounds).filter_map(pair).collect()
}

/// The same of the old version and its A/A control.
fn control_pairs(run: &Run) -> Vec<Pair> {
    let pair = |round| Some((cost(&run.cells[BASE], round)?, cost(&run.cells[CONTROL], round)?));
    measured(run, 0..u32::MAX).filter_map(pair).collect()
}

fn measured(run: &Run, rounds: Range<u32>) -> impl Iterator<Item = u32> {
    run.cells[HEAD].blocks.iter().map(|block| block.round).filter(move |round| rounds.contains(round))
}

fn cost(cell: &Cell, round: u32) -> Option<f64> {
    let block = cell.blocks.iter().find(|block| block.round == round)?;
    (usable(block) == Usable::Yes).then(|| Sample::of(block).cpu_us)
}

fn sentence(finding: &Finding, effect: f64) -> String {
    let measured = finding.ratio.map_or_else(
        || "no pair of blocks counts".to_owned(),
        |ratio| match ratio.samples {
            1 => format!("CPU per request × {:.3}, one pair", ratio.value),
            samples => format!(
                "CPU per request × {:.3} ({:.3}..{:.3}), {samples} pairs",
                ratio.value, ratio.low, ratio.high
            ),
        },
    );
    let verdict = match finding.decision {
        Decision::Pass => format!("pass: a slowdown of {} % is excluded", effect * 100.0),
        Decision::Regression => "regression".to_owned(),
        Decision::CannotTell | Decision::Continue => {
            let doubt = finding.doubt.map_or_else(String::new, |doubt| format!(" ({doubt})"));
            format!("cannot tell whether it is {} % slower{doubt}", effect * 100.0)
        }
    };
    format!("{verdict}; {measured}")
}

fn code(finding: &Finding, run: &Run) -> ExitCode {
    match finding.decision {
        _ if run.interrupted => ExitCode::from(130),
        Decision::Pass => ExitCode::SUCCESS,
        Decision::Regression => ExitCode::from(1),
        Decision::CannotTell | Decision::Continue => ExitCode::from(2),
    }
}

/// Such as `5%` or `0.05`.
pub(crate) fn percentage(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value: f64 = number.trim().parse().map_err(|_| format!("{text}: write 5% or 0.05"))?;
    let value = value / scale;
    let fits = value > 0.0 && value < 1.0;
    fits.then_some(value).ok_or_else(|| format!("{text}: an effect is above 0 % and below 100 %, such as 5%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::decide::Doubt;

    #[test]
    fn an_effect_is_a_share_and_the_message_says_which() {
        assert_eq!((percentage("5%"), percentage("0.05")), (Ok(0.05), Ok(0.05)));
        for text in ["0%", "500%", "1", "NaN"] {
            let error = percentage(text).unwrap_err();
            assert!(error.contains("above 0 % and below 100 %"), "{error}");
        }
        assert!(percentage("much").unwrap_err().contains("write 5% or 0.05"));
    }

    #[test]
    fn a_gate_that_cannot_tell_says_why() {
        let finding =
            Finding { decision: Decision::CannotTell, ratio: None, doubt: Some(Doubt::Noise(0.538)) };
        assert!(sentence(&finding, 0.3).contains("30 % slower (the A/A control reaches as far as 53.8 %)"));
        let finding = Finding { doubt: Some(Doubt::FewPairs), ..finding };
        assert!(sentence(&finding, 0.3).contains("takes 8 pairs"));
    }
}
