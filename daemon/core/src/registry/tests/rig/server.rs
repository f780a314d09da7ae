//! The rig's DHCP server, and who answers ARP.

use super::*;
use crate::wire::frame::{Frame, Udp};

impl Rig {
    pub(super) fn close(&mut self, op: Option<OpId>, exchange: ExchangeId) {
        self.open.remove(&exchange);
        match op {
            Some(op) => self.closes.push((op, exchange)),
            None => _ = self.ports.remove(&exchange),
        }
        if let (Some(_), false) = (op, self.hold_closes) {
            self.closed();
        }
    }

    /// The links that were made for exchanges are gone.
    fn closed(&mut self) {
        for (op, exchange) in std::mem::take(&mut self.closes) {
            self.ports.remove(&exchange);
            self.done(op, Outcome::Closed);
        }
    }

    /// Lets those go that were held.
    pub(in crate::registry::tests) fn close_late(&mut self) {
        self.hold_closes = false;
        self.closed();
        self.drain();
    }

    /// A slow server answers the next message.
    pub(in crate::registry::tests) fn answer_next(&mut self) {
        if let Some((exchange, bytes)) = self.backlog.as_mut().and_then(VecDeque::pop_front) {
            self.answer(exchange, &bytes, None);
            self.drain();
        }
    }

    fn arp_reply(&self, owner: Mac, question: &Arp) -> Vec<u8> {
        Arp {
            op: ArpOp::Reply,
            source_mac: owner,
            destination_mac: question.sender_mac,
            sender_mac: owner,
            sender: question.target,
            target_mac: question.sender_mac,
            target: question.sender,
        }
        .encode()
    }

    pub(in crate::registry::tests) fn serve(
        &mut self,
        exchange: ExchangeId,
        bytes: &[u8],
        over: Option<u32>,
    ) {
        let is_arp = matches!(
            frame::decode(bytes, FrameMeta::default()),
            Ok(Frame::Arp(_))
        );
        match self.backlog.as_mut().filter(|_| !is_arp) {
            Some(backlog) => backlog.push_back((exchange, bytes.to_vec())),
            None => self.answer(exchange, bytes, over),
        }
    }

    fn answer(&mut self, exchange: ExchangeId, bytes: &[u8], over: Option<u32>) {
        let meta = FrameMeta {
            other_host: self.readdressed,
            ..FrameMeta::default()
        };
        let mut reply = match frame::decode(bytes, meta).unwrap() {
            Frame::Arp(arp) => {
                self.asked.push((arp.sender, arp.target));
                self.asked_from.push(arp.sender_mac);
                self.wired.asked_over.push(over);
                let owner = |address| self.stations.get(address).copied();
                let Some(owner) = owner(&arp.target).or_else(|| owner(&ANY)) else {
                    return;
                };
                self.arp_reply(owner, &arp)
            }
            Frame::Udp(udp) => {
                let p = udp.payload;
                let kind = p[240..]
                    .windows(3)
                    .find(|w| w[0] == 53 && w[1] == 1)
                    .unwrap()[2];
                let ciaddr = Ipv4Addr::new(p[12], p[13], p[14], p[15]);
                self.sent.push((kind, ciaddr));
                self.wired.sent_over.push((kind, over));
                self.chaddrs.insert(Mac(p[28..34].try_into().unwrap()));
                if kind == 1 {
                    self.discovers.push((exchange, bytes.to_vec()));
                    let wish = p[240..].windows(6).find(|w| w[0] == 50 && w[1] == 4);
                    self.wished = wish.map(|w| Ipv4Addr::new(w[2], w[3], w[4], w[5]));
                }
                if kind == 4 {
                    let kept = self.reserved.is_some_and(|(mac, _)| p[28..34] == mac.0);
                    self.give = Ipv4Addr::from_bits(self.give.to_bits() + u32::from(!kept));
                }
                if self.beside && !self.ports.contains(&exchange) {
                    return;
                }
                let chaddr = Mac(p[28..34].try_into().unwrap());
                let is_flagged = p[10] & 0x80 != 0 || !ciaddr.is_unspecified();
                let server = match self.server {
                    _ if self
                        .known
                        .as_ref()
                        .is_some_and(|known| !known.contains(&chaddr)) =>
                    {
                        return;
                    }
                    Server::AnswersFlag if is_flagged => Server::Up,
                    server => server,
                };
                let client = self.client_of(p);
                let is_named = p[240..].windows(2).any(|option| option == [54, 4]);
                let is_known = self.granted.values().any(|who| *who == client);
                let server = match server {
                    Server::Discreet if kind == 3 && !is_named && !is_known => return,
                    Server::Discreet => Server::Up,
                    server => server,
                };
                if kind == 7 {
                    self.granted
                        .retain(|address, who| *address != ciaddr || *who != client);
                }
                let reserved = self
                    .reserved
                    .filter(|(mac, _)| p[28..34] == mac.0)
                    .map(|(_, address)| address);
                let give = reserved.unwrap_or_else(|| self.address_for(&client));
                if kind == 3 && server == Server::Up {
                    self.granted.retain(|_, who| *who != client);
                    self.granted.insert(give, client);
                }
                let unicast = Some(udp.destination).filter(|to| *to != Ipv4Addr::BROADCAST);
                let answer = match (kind, server) {
                    (1, Server::Up | Server::Naks | Server::OffersOnly) => 2,
                    (3, Server::Up) | (1 | 3, Server::Commits) => 5,
                    (3, Server::Naks | Server::NaksOnly) => 6,
                    _ => return,
                };
                let mut b = vec![2, 1, 6, 0];
                b.extend(&p[4..8]);
                b.extend([0; 8]);
                b.extend(if answer == 6 { [0; 4] } else { give.octets() });
                b.resize(28, 0);
                b.extend(&p[28..34]);
                b.resize(236, 0);
                b.extend([99, 130, 83, 99, 53, 1, answer, 54, 4]);
                b.extend(unicast.unwrap_or(self.server_id).octets());
                b.extend([1, 4, 255, 255]);
                b.extend(self.mask);
                b.extend([51, 4]);
                b.extend(self.lease.to_be_bytes());
                b.extend(
                    self.dns
                        .iter()
                        .flat_map(|dns| [[6, 4].as_slice(), &dns.octets()].concat()),
                );
                b.extend(&self.options);
                b.push(255);
                Udp {
                    source_mac: SERVER_MAC,
                    destination_mac: udp.source_mac,
                    source: SERVER,
                    destination: Ipv4Addr::BROADCAST,
                    source_port: 67,
                    destination_port: 68,
                    payload: &b,
                }
                .encode()
            }
        };
        if let Some((at, byte)) = self.damage {
            let length = reply.len();
            reply[at % length] = byte;
        }
        self.reg.handle(
            self.now(),
            Input::Frame {
                exchange,
                bytes: &reply,
                meta,
            },
        );
    }

    /// Returns how the server identifies the client of a message.
    fn client_of(&self, message: &[u8]) -> Vec<u8> {
        let mut options = &message[240..];
        while let [code, len, rest @ ..] = options {
            match (code, self.by_chaddr) {
                (255, _) | (_, true) => break,
                (61, false) => return rest[..usize::from(*len)].to_vec(),
                _ => options = &rest[usize::from(*len)..],
            }
        }
        message[28..34].to_vec()
    }
    fn address_for(&self, client: &Vec<u8>) -> Ipv4Addr {
        let is_free =
            |address: &Ipv4Addr| self.granted.get(address).is_none_or(|who| who == client);
        let own = || {
            self.granted
                .iter()
                .find(|(_, who)| *who == client)
                .map(|(address, _)| *address)
        };
        match self.one_for_all || is_free(&self.give) {
            true => self.give,
            false => own().unwrap_or_else(|| {
                let later = (1..).map(|n| Ipv4Addr::from_bits(self.give.to_bits() + n));
                later.into_iter().find(is_free).unwrap()
            }),
        }
    }
}
