//! Compares our messages, byte by byte, with those of another implementation.

use std::io::Write;
use std::thread;

use super::super::message::MethodCall;
use super::super::{Bus, ExecCommand, MANAGER, Property, TransientUnit, unit_path};
use super::{connected, read_message, reply_to};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The bytes that `busctl` (systemd 252) sent for the same calls. busctl lets the bus start services and allows
/// interactive authorization. We do neither, and the third byte says so.
fn sent_by_busctl(text: &str) -> Vec<u8> {
    let mut bytes = unhex(text);
    bytes[2] = 2;
    bytes
}

fn every_property() -> Vec<(&'static str, Property)> {
    let sleep = ExecCommand {
        path: "/bin/sleep".to_owned(),
        argv: vec!["sleep".to_owned(), "9".to_owned()],
        ignore_failure: false,
    };
    vec![
        ("Description", Property::Str("a leash".to_owned())),
        ("BindsTo", Property::StrList(vec!["leash-guard.service".to_owned()])),
        ("Delegate", Property::Bool(true)),
        ("KillSignal", Property::I32(9)),
        ("OOMScoreAdjust", Property::U32(7)),
        ("TimeoutStopUSec", Property::U64(500_000)),
        ("PIDs", Property::PidList(vec![41, 42])),
        ("ExecStart", Property::Exec(vec![sleep])),
    ]
}

/// The bytes that a call sends to a bus, which answers with a job.
fn sent(call: impl FnOnce(&mut Bus)) -> Vec<u8> {
    let (ours, mut theirs) = connected();
    let mut bus = Bus { manager: Some(MANAGER), last_serial: 1, ..ours };
    let server = thread::spawn(move || {
        let sent = read_message(&mut theirs);
        theirs.write_all(&reply_to(2, "o", |body| body.str("/org/freedesktop/systemd1/job/7"))).expect("write");
        sent
    });
    call(&mut bus);
    server.join().expect("server")
}

#[test]
fn hello_has_the_bytes_of_busctl() {
    let call = MethodCall {
        destination: Some("org.freedesktop.DBus"),
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: "",
    };
    let expected = sent_by_busctl(
        "6c01000100000000010000006d00000001016f00150000002f6f72672f667265656465736b746f702f4442757300000003
        0173000500000048656c6c6f00000002017300140000006f72672e667265656465736b746f702e44427573000000000601
        7300140000006f72672e667265656465736b746f702e4442757300000000",
    );
    assert_eq!(call.encode(1, |_| ()), Ok(expected));
}

#[test]
fn start_transient_unit_has_the_bytes_of_busctl() {
    let expected = sent_by_busctl(
        "6c0104015801000002000000b600000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100
        000000000000030173001200000053746172745472616e7369656e74556e697400000000000002017300200000006f72672e
        667265656465736b746f702e73797374656d64312e4d616e61676572000000000000000006017300180000006f72672e6672
        65656465736b746f702e73797374656d643100000000000000000801670010737361287376296128736128737629290000
        000d0000006c656173682d312e73636f7065000000040000006661696c000000002c010000000000000b00000044657363
        72697074696f6e00017300000700000061206c65617368000700000042696e6473546f000261730018000000130000006c65
        6173682d67756172642e7365727669636500000000000800000044656c65676174650001620001000000000000000a000000
        4b696c6c5369676e616c000169000000090000000e0000004f4f4d53636f726541646a757374000175000000070000000000
        00000f00000054696d656f757453746f7055536563000174000020a107000000000004000000504944730002617500000000
        08000000290000002a000000000000000900000045786563537461727400076128736173622900002c000000000000000a00
        00002f62696e2f736c65657000001200000005000000736c65657000000001000000390000000000000000000000",
    );
    let job = "/org/freedesktop/systemd1/job/7";
    let sent = sent(|bus| {
        assert_eq!(bus.start_transient_unit("leash-1.scope", &every_property(), &[]).expect("a job"), job);
    });
    assert_eq!(sent, expected);
}

#[test]
fn units_made_together_have_the_bytes_of_busctl() {
    let expected = sent_by_busctl(
        "6c010401b800000002000000b600000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100
        000000000000030173001200000053746172745472616e7369656e74556e697400000000000002017300200000006f72672e
        667265656465736b746f702e73797374656d64312e4d616e61676572000000000000000006017300180000006f72672e6672
        65656465736b746f702e73797374656d64310000000000000000080167001073736128737629612873612873762929000000
        07000000612e73636f706500040000006661696c00000000220000000000000005000000536c696365000173000000000d00
        00006c656173682d612e736c696365000000700000000b0000006c656173682e736c6963650000000000000000000d000000
        6c656173682d612e736c696365000000400000001000000053746f705768656e556e6e656564656400016200010000000000
        0000090000004d656d6f72794d617800017400000000000000000010000000000000",
    );
    let limits = vec![("StopWhenUnneeded", Property::Bool(true)), ("MemoryMax", Property::U64(4096))];
    let with = [
        TransientUnit { name: "leash.slice".to_owned(), properties: Vec::new() },
        TransientUnit { name: "leash-a.slice".to_owned(), properties: limits },
    ];
    let slice = [("Slice", Property::Str("leash-a.slice".to_owned()))];
    let sent = sent(|bus| drop(bus.start_transient_unit("a.scope", &slice, &with).expect("a job")));
    assert_eq!(sent, expected);
}

#[test]
fn set_unit_properties_has_the_bytes_of_busctl() {
    let expected = sent_by_busctl(
        "6c0104015000000002000000ad00000001016f00190000002f6f72672f667265656465736b746f702f73797374656d643100
        0000000000000301730011000000536574556e697450726f706572746965730000000000000002017300200000006f72672e
        667265656465736b746f702e73797374656d64312e4d616e61676572000000000000000006017300180000006f72672e6672
        65656465736b746f702e73797374656d64310000000000000000080167000773626128737629000000000b0000006c656173
        682e736c696365000100000038000000090000004d656d6f72794d6178000174000000000000000000100000000000000800
        00005461736b734d6178000174000900000000000000",
    );
    let limits = [("MemoryMax", Property::U64(4096)), ("TasksMax", Property::U64(9))];
    let sent = sent(|bus| bus.set_unit_properties("leash.slice", &limits).expect("an answer"));
    assert_eq!(sent, expected);
}

#[test]
fn unit_paths_are_escaped() {
    assert_eq!(unit_path("leash-1.scope"), "/org/freedesktop/systemd1/unit/leash_2d1_2escope");
    assert_eq!(unit_path("1a"), "/org/freedesktop/systemd1/unit/_31a");
    assert_eq!(unit_path("é"), "/org/freedesktop/systemd1/unit/_c3_a9");
    assert_eq!(unit_path(""), "/org/freedesktop/systemd1/unit/_");
}
