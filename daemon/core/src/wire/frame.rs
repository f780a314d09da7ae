//! stub
/// What the kernel said of a frame beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// The frame never was on a wire and its UDP checksum is not finished (`TP_STATUS_CSUMNOTREADY`).
    pub checksum_not_ready: bool,
    /// The VLAN id that the kernel took out of the frame, 0 for none (or a priority tag).
    pub vlan: u16,
    /// The frame was addressed to another host's Ethernet address (`PACKET_OTHERHOST`).
    pub other_host: bool,
}
