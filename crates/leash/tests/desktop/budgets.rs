//! Budgets of memory and processes, enforced by the kernel.

use testkit::leash::leash;

use crate::person::Person;

/// A server over its budget of memory is ended, and its receipt says so.
#[test]
#[ignore = "runs in the box"]
fn memory() {
    let person = Person::new();
    let greedy = r#"python3 -c 'b"x" * (500 << 20)'"#;
    let answer = person.answer(&format!("{} run --memory 64M -- {greedy} < <(sleep 60 > /dev/null 2>&1)", leash().display()));
    assert_ne!(answer.code, 0, "{answer:?}");
    let receipts = person.receipts();
    assert_eq!(receipts.len(), 1, "{receipts:#?}");
    assert_eq!(receipts[0]["containment"], "unit", "{receipts:#?}");
}
