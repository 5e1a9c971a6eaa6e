//! An expression in one allocation: tests in the order of their evaluation, each of which says where to go on.
use super::check::{Check, IntegerCheck};
use super::evaluate::Record;
use super::field::Field;
use super::subject::Subject;
use super::{Node, Test};

/// Where an evaluation ends: positions behind every step.
const MATCH: u32 = u32::MAX;
const FAIL: u32 = u32::MAX - 1;

/// A test, and the positions of the steps that follow it.
#[derive(Debug)]
#[repr(align(64))]
struct Step {
    test: Test,
    yes: u32,
    no: u32,
}

const _: () = assert!(size_of::<Step>() == 64);

/// Conjuncts that the index guarantees, and the rest.
#[derive(Debug)]
pub(super) struct Program {
    steps: Box<[Step]>,
    /// The first step.
    start: u32,
    /// The first step that the index leaves to evaluate.
    rest: u32,
}

impl Program {
    /// Compiles a conjunction of these.
    pub(super) fn new(indexed: Vec<Node>, rest: Vec<Node>) -> Program {
        let mut builder = Builder::default();
        let rest = builder.add(Node::All(rest.into()), MATCH, FAIL);
        let start = builder.add(Node::All(indexed.into()), rest, FAIL);
        builder.finish(start, rest)
    }

    /// Whether the index leaves nothing to evaluate.
    pub(super) fn is_indexed(&self) -> bool {
        self.rest == MATCH
    }

    /// Evaluates everything.
    pub(super) fn holds(&self, subject: &impl Subject, record: &mut impl Record) -> bool {
        self.run(self.start, subject, record)
    }

    /// Evaluates what the index leaves.
    pub(super) fn rest_holds(&self, subject: &impl Subject, record: &mut impl Record) -> bool {
        self.run(self.rest, subject, record)
    }

    /// Apart, so that candidates that fail before it cost little.
    #[inline(never)]
    fn run(&self, mut at: u32, subject: &impl Subject, record: &mut impl Record) -> bool {
        while let Some(step) = self.steps.get(at as usize) {
            at = if step.test.holds(subject, record) { step.yes } else { step.no };
        }
        at == MATCH
    }
}

/// Adds steps from the last to the first, because each names those that follow.
#[derive(Default)]
struct Builder(Vec<Step>);

impl Builder {
    /// Adds a node, behind which the evaluation goes on at one of these. Returns where the node begins; a node whose outcome
    /// is known has no steps.
    fn add(&mut self, node: Node, yes: u32, no: u32) -> u32 {
        match node {
            Node::Test(test) if yes == no && !test.records() => yes,
            Node::Test(test) => {
                self.0.push(Step { test, yes, no });
                self.0.len() as u32 - 1
            }
            Node::Not(inner) => self.add(*inner, no, yes),
            Node::All(nodes) if contradict(&nodes) => no,
            Node::All(nodes) => self.chain(nodes, no, yes, |builder, node, next| builder.add(node, next, no)),
            Node::Any(nodes) => {
                self.chain(nodes, yes, no, |builder, node, next| builder.add(node, yes, next))
            }
        }
    }

    /// Adds nodes any of which may decide the outcome of all; if none does, the evaluation goes on at `end`.
    fn chain(
        &mut self,
        nodes: Box<[Node]>,
        decided: u32,
        end: u32,
        add: impl Fn(&mut Builder, Node, u32) -> u32,
    ) -> u32 {
        let (before, mut next) = (self.0.len(), end);
        for node in nodes.into_iter().rev() {
            next = add(self, node, next);
            if next == decided {
                // This node always decides: nothing behind it is reached.
                self.0.truncate(before);
            }
        }
        next
    }

    fn finish(mut self, start: u32, rest: u32) -> Program {
        let count = self.0.len() as u32;
        let turned = |at: u32| if at < count { count - 1 - at } else { at };
        self.0.reverse();
        for step in &mut self.0 {
            (step.yes, step.no) = (turned(step.yes), turned(step.no));
        }
        Program { steps: self.0.into(), start: turned(start), rest: turned(rest) }
    }
}

/// Whether conjuncts are never all met, because a number would have to equal two.
fn contradict(nodes: &[Node]) -> bool {
    let mut wanted: Vec<(&Field, i64)> = Vec::new();
    let mut differs = false;
    for node in nodes {
        match node {
            Node::Test(Test { field, check: Check::Integer(IntegerCheck::EQUALS, number), .. }) => {
                differs |= wanted.iter().any(|(other, than)| *other == field && than != number);
                wanted.push((field, *number));
            }
            Node::Test(test) if !test.records() => {}
            _ => return false,
        }
    }
    differs
}
