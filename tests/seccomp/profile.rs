//! The profile for containers, read as a runtime of containers reads it, and put over a process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use seccompiler::{BpfProgram, TargetArch, apply_filter, compile_from_json};
use serde::Deserialize;
use serde_json::{Value, json};

/// The file as it is given to users.
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tuning/seccomp.json");

/// The parts of the format that the file uses. Any other part is an error: it would be left out
/// here and not in a container.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    default_action: String,
    default_errno_ret: u32,
    architectures: Vec<String>,
    pub syscalls: Vec<Entry>,
}

/// One entry of the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// Why the entry is there. Runtimes do not read it.
    pub comment: String,
    /// System calls.
    pub names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<Argument>,
}

/// A condition on an argument of the call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u8,
    value: u64,
    value_two: Option<u64>,
    op: String,
}

impl Entry {
    /// Whether its calls are allowed, perhaps with some arguments only.
    pub fn allows(&self) -> bool {
        assert!(["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"].contains(&&*self.action), "{}", self.action);
        self.action == "SCMP_ACT_ALLOW"
    }

    /// The rules of the filter for the calls that this machine has.
    fn rules(&self) -> Vec<Value> {
        let args: Vec<Value> = self.args.iter().map(Argument::rule).collect();
        let rule = |name: &String| match args.is_empty() {
            true => json!({ "syscall": name }),
            false => json!({ "syscall": name, "args": args }),
        };
        self.names.iter().map(rule).filter(is_known).collect()
    }
}

impl Argument {
    fn rule(&self) -> Value {
        let (op, value) = match (&*self.op, self.value_two) {
            ("SCMP_CMP_EQ", None) => (json!("eq"), self.value),
            ("SCMP_CMP_MASKED_EQ", Some(value)) => (json!({ "masked_eq": self.value }), value),
            (op, _) => panic!("{op}: not known here"),
        };
        json!({ "index": self.index, "type": "qword", "op": op, "val": value })
    }
}

/// Calls that another architecture has are left out, as in a container.
fn is_known(rule: &Value) -> bool {
    let alone = json!({ "syscall": rule["syscall"] });
    compile(&[alone], json!("allow"), &json!({ "errno": 1 })).is_some()
}

fn compile(rules: &[Value], on_match: Value, otherwise: &Value) -> Option<BpfProgram> {
    let filter = json!({ "filter": rules, "match_action": on_match, "mismatch_action": otherwise });
    let text = json!({ "all": filter }).to_string();
    let arch: TargetArch =
        std::env::consts::ARCH.try_into().expect("an architecture of the profile");
    let mut compiled = compile_from_json(text.as_bytes(), arch).ok()?;
    compiled.remove("all")
}

impl Profile {
    /// Reads the file.
    pub fn read() -> Profile {
        let text = std::fs::read_to_string(Path::new(PATH)).expect("the profile");
        let profile: Profile = serde_json::from_str(&text).expect("the format of a profile");
        assert_eq!(profile.default_action, "SCMP_ACT_ERRNO");
        assert_eq!(profile.architectures, ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]);
        profile
    }

    /// The filters: the kernel takes the strictest answer of all. A filter for each error that
    /// entries have of their own, and then the one that refuses what stands in no entry; it forbids
    /// further filters.
    fn filters(&self) -> Vec<BpfProgram> {
        let mut by_error: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        for entry in self.syscalls.iter().filter(|entry| !entry.allows()) {
            let error = entry.errno_ret.expect("an error of its own");
            by_error.entry(error).or_default().extend(entry.rules());
        }
        let own = by_error.iter().map(|(error, rules)| {
            compile(rules, json!({ "errno": error }), &json!("allow")).expect("a filter")
        });
        let named: Vec<Value> = self.syscalls.iter().flat_map(Entry::rules).collect();
        let others = json!({ "errno": self.default_errno_ret });
        let last = compile(&named, json!("allow"), &others).expect("a filter");
        own.chain([last]).collect()
    }
}

/// What a thread is to do that is under the profile.
type Task = Box<dyn FnOnce() + Send>;

/// A thread under the profile. What it starts is under the profile as well, and ends with it.
pub struct Contained(Sender<Task>);

impl Contained {
    pub fn new() -> Contained {
        let (tasks, taken): (Sender<Task>, Receiver<Task>) = channel();
        let filters = Profile::read().filters();
        thread::spawn(move || {
            for filter in &filters {
                apply_filter(filter).expect("the kernel takes the filter");
            }
            taken.into_iter().for_each(|task| task());
        });
        Contained(tasks)
    }

    /// Does something under the profile.
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        // An error means that nobody waits any more.
        let task = move || drop(answer.send(task()));
        self.0.send(Box::new(task)).expect("it ends with this value");
        answered.recv().expect("the task does not panic")
    }

    /// Starts a process under the profile. `kit::children::command` has made the command.
    pub fn spawn(&self, mut command: Command) -> Child {
        self.run(move || command.spawn()).expect("it starts under the profile")
    }
}
