//! Records of earlier daemons: `recorded.jsonl` has a store's records, one per line, as the daemons of their time spelled
//! them.
//!
//! The lines are never rewritten. A daemon that spells a record differently adds lines. Of what no released daemon
//! wrote, some keys are ignored.

use serde_json::Value;

use super::rig::*;
use crate::profile::Wants;

const RECORDS: &str = include_str!("recorded.jsonl");

fn recorded() -> BTreeMap<BindingId, Record> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    RECORDS
        .lines()
        .map(read)
        .collect::<Vec<(BindingId, Record)>>()
        .into_iter()
        .collect()
}

#[test]
fn a_hundred_leases_of_an_earlier_daemon_go_on() {
    let mut records = recorded();
    // The rig's callers are CNI's.
    records.retain(|_, record| record.attachment.container().is_some());
    let mut rig = Rig::new(8);
    (rig.live, rig.store.durable) = ((1..=200).collect(), records.clone());
    rig.restart();
    let rows: BTreeMap<_, _> = rig
        .rows()
        .into_iter()
        .map(|row| (row.attachment.clone(), row))
        .collect();
    let mut live = 0;
    for record in records.values() {
        let row = rows.get(&record.attachment);
        let state = row.map(|row| row.state);
        match record.state {
            RecordState::Bound => {
                live += 1;
                let row = row.unwrap_or_else(|| panic!("{} is gone", record.attachment));
                assert_eq!(row.state, BOUND, "{}", record.attachment);
                assert_eq!(
                    row.tenure,
                    Some(record.lease.tenure(&record.profile.policy)),
                    "{}",
                    record.attachment
                );
                assert_eq!(
                    (&row.identity, &row.link),
                    (&Some(record.identity.clone()), &Some(record.link.clone())),
                    "{}",
                    record.attachment
                );
            }
            RecordState::Seeking => {
                assert_eq!(
                    state,
                    Some(BindingState::Client(StateName::Init)),
                    "{}",
                    record.attachment
                )
            }
            RecordState::Releasing if record.kept.is_some() => {
                assert_eq!(state, Some(BindingState::Kept), "{}", record.attachment);
            }
            // It may have been given back already.
            RecordState::Releasing => assert!(
                matches!(state, None | Some(BindingState::Releasing)),
                "{state:?}"
            ),
            RecordState::Past => assert_eq!(state, None, "{}", record.attachment),
        }
    }
    assert_eq!(live, 101);
}

#[test]
fn a_record_without_wants_goes_by_its_door() {
    let mut records = recorded();
    records.values_mut().for_each(crate::docker::complete);
    let wants = |id| records[&BindingId(id)].profile.wants;
    assert!(wants(115).told_once && wants(115).is_found_later());
    // The release that wrote them gave up a second earlier.
    let mut today = wants(116);
    today.patience = wants(115).patience;
    assert_eq!((wants(1), wants(115)), (Wants::default(), today));
}

#[test]
fn records_of_earlier_daemons_lose_nothing_when_rewritten() {
    for line in RECORDS.lines() {
        let (id, record): (BindingId, Record) = serde_json::from_str(line).unwrap();
        let mut before: Value = serde_json::from_str(line).unwrap();
        // Nothing is done with these any more.
        for (of, keys) in [
            ("/1/lease", &["ntp", "hostname"][..]),
            ("/1", &["grace_asked"]),
            ("/1/former", &["displaced", "leases"]),
        ] {
            let of = before.pointer_mut(of).and_then(Value::as_object_mut);
            of.into_iter()
                .for_each(|of| of.retain(|key, _| !keys.contains(&&**key)));
        }
        // A route's next hop has had another name in a configuration.
        let routes = before.pointer_mut("/1/profile/routes");
        for route in routes.and_then(Value::as_array_mut).into_iter().flatten() {
            let route = route.as_object_mut().expect("a route");
            let via = route.remove("gateway");
            route.extend(via.map(|via| ("via".to_owned(), via)));
        }
        assert_eq!(serde_json::to_value((id, record)).unwrap(), before);
    }
}
