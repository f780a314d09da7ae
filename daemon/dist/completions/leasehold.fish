# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_leasehold_global_optspecs
    string join \n h/help V/version
end

function __fish_leasehold_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_leasehold_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_leasehold_using_subcommand
    set -l cmd (__fish_leasehold_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c leasehold -n "__fish_leasehold_needs_command" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_needs_command" -s V -l version -d 'Print version'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "daemon" -d 'Hold leases until told to stop'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "list" -d 'Show all leases'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "show" -d 'Show everything about one lease: its server and options, what is on its interface, its last events'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "status" -d 'Show how the daemon is doing, and what needs attention'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "events" -d 'Show what happened to leases: the last 10,000 events'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "renew" -d 'Extend leases now, each in turn'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "release" -d 'Give leases back to their servers'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "doctor" -d 'Check this host as an installer would: one line per check, and how to fix each fault'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "capture" -d 'Write the DHCP and ARP frames of leases to a file that Wireshark opens, from now until stopped'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "log" -d 'Show what the daemon logs, or change it for a while'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "exporter" -d 'Serve metrics for Prometheus, and a web page, over TCP; needs no privilege'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "probe" -d 'Ask the DHCP servers of a LAN what they offer, without taking it; needs no daemon'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "install" -d 'Put the plugin where this host\'s runtimes look for it'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "uninstall" -d 'Remove the plugin, and put back what it replaced'
complete -c leasehold -n "__fish_leasehold_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l socket -d 'The socket that the shim asks; not used when systemd passes one' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l docker-plugin-dir -d 'Docker\'s plugin directory (/run/docker/plugins), for the drivers leasehold and leasehold-ipvlan' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l docker-requires-mac -d 'Whether Docker gives each container of the driver leasehold an Ethernet address; false for ipvlan, if Docker runs the daemon as a plugin, which has only one driver' -r -f -a "true\t''
false\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l read-socket -d 'A second, read-only socket for monitors; not used when systemd passes one' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l read-gid -d 'The id of the group that may connect to that socket; by default the daemon\'s own group' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l docker-netns-dir -d 'Where Docker keeps its containers\' network namespaces' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l state-dir -d 'Where leases are stored' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l other-state-dir -d 'Where leases are stored instead while a daemon with another socket has that directory, and from then on' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l runtime-dir -d 'Where the name servers of each lease are published, in a file like /etc/resolv.conf' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l host-prefix -d 'Where a daemon in a container sees the host\'s root directory; it is put before each netns path' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l pid-file -d 'Where to write the process id; the file is removed at the end' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l timeout -d 'How long an ADD may take, in seconds, unless its network says otherwise' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l cni-cache -d 'Where libcni caches attachments: a daemon without leases adopts the containers in there; empty for none' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l log-format -d 'The format of the log, on standard error' -r -f -a "text\t'For people; the journal\'s own fields if standard error is the journal'
json\t'One object per line'"
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l log -d 'What is logged: a level, or `target=level`, comma-separated' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -l broadcast -d 'Ask DHCP servers to answer by broadcast, unless a network says otherwise'
complete -c leasehold -n "__fish_leasehold_using_subcommand daemon" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l cni-conf-dir -d 'Where CNI networks are configured, for --ranges' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l network -d 'Only leases of this network' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l container -d 'Only those whose container\'s id begins like this' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l address -d 'Only those with this address, or in this subnet' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l state -d 'Only those in this state' -r -f -a "INIT\t''
SELECTING\t''
REQUESTING\t''
INIT-REBOOT\t''
REBOOTING\t''
BOUND\t''
RENEWING\t''
REBINDING\t''
KEPT\t''
RELEASING\t''
HELD\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l caller -d 'Only those that CNI, or Docker, asked for' -r -f -a "cni\t''
docker\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -s o -l output -d 'Show all columns' -r -f -a "few\t'The most useful ones'
wide\t'All'"
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l ranges -d 'Show local ranges instead: the size of each, and how many addresses are taken. Only those of a fallback need a daemon'
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -s w -l watch -d 'Refresh the list every second, in place'
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand show" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand show" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand status" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand status" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l network -d 'Only events about leases of this network' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l kind -d 'Only events of these kinds' -r -f -a "acquired\t''
renewed\t''
rebound\t''
changed\t''
lost\t''
expired\t''
conflict\t''
declined\t''
released\t''
adopted\t''
orphan_found\t''
address_removed\t''
detection_off\t''
address_held\t''
server_silent\t''
server_back\t''
unreachable\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l since -d 'Only events since this long ago (90s, 10m, 2h), or since a time such as 2026-11-28T06:00' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -s n -l number -d 'Only the last N of them; with --follow, the last N and new ones' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l after -d 'Only events after this number' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -s f -l follow -d 'Go on with new events, even when the daemon restarts'
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -l json -d 'Print one JSON object per line, as the daemon gave it'
complete -c leasehold -n "__fish_leasehold_using_subcommand events" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l network -d 'Only leases of this network' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l container -d 'Only those whose container\'s id begins like this' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l address -d 'Only those with this address, or in this subnet' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l state -d 'Only those in this state' -r -f -a "INIT\t''
SELECTING\t''
REQUESTING\t''
INIT-REBOOT\t''
REBOOTING\t''
BOUND\t''
RENEWING\t''
REBINDING\t''
KEPT\t''
RELEASING\t''
HELD\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l caller -d 'Only those that CNI, or Docker, asked for' -r -f -a "cni\t''
docker\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l all -d 'All leases'
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l yes -d 'Do not ask for confirmation of --all'
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand renew" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l network -d 'Only leases of this network' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l container -d 'Only those whose container\'s id begins like this' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l address -d 'Only those with this address, or in this subnet' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l state -d 'Only those in this state' -r -f -a "INIT\t''
SELECTING\t''
REQUESTING\t''
INIT-REBOOT\t''
REBOOTING\t''
BOUND\t''
RENEWING\t''
REBINDING\t''
KEPT\t''
RELEASING\t''
HELD\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l caller -d 'Only those that CNI, or Docker, asked for' -r -f -a "cni\t''
docker\t''"
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l all -d 'All leases'
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l yes -d 'Do not ask for confirmation of --all'
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -l force -d 'Also leases of living containers: their addresses are taken off the interfaces first'
complete -c leasehold -n "__fish_leasehold_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l state-dir -d 'Where leases are stored' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l runtime-dir -d 'Where name servers are published' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l docker-plugin-dir -d 'Docker\'s plugin directory, if the daemon serves Docker' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l docker-netns-dir -d 'Where the daemon looks for the network namespaces of Docker\'s containers' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l cni-bin-dir -d 'Where runtimes look for CNI plugins; by default what their configuration says, and the well-known places' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l cni-conf-dir -d 'Where CNI networks are configured' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -l json -d 'Print all findings as one JSON object'
complete -c leasehold -n "__fish_leasehold_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -s w -l write -d 'The file, in the format pcapng; - is standard output' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -l for -d 'For how long: 90s, 10m, 2h; without it, until interrupted' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -l size -d 'The longest file, in MiB' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -l all -d 'The frames of all attachments'
complete -c leasehold -n "__fish_leasehold_using_subcommand capture" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand log" -l for -d 'For how long: 90s, 10m, 2h' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand log" -l socket -d 'The daemon\'s socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand log" -l reset -d 'Log what the daemon logged when it started'
complete -c leasehold -n "__fish_leasehold_using_subcommand log" -l json -d 'Print the daemon\'s answer as JSON'
complete -c leasehold -n "__fish_leasehold_using_subcommand log" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand exporter" -l listen -d 'Where to listen' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand exporter" -l host -d 'The names by which browsers may ask for the page, besides addresses and localhost' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand exporter" -l socket -d 'The daemon\'s read-only socket' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand exporter" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l netns -d 'The network namespace of the link, by its path or by its name in `ip netns`; the host\'s by default' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l mac -d 'The hardware address to ask for; by default the link\'s own in a namespace, else one derived from it' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l vlan -d 'The VLAN on the link' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l wait -d 'How many seconds to wait for answers' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l network -d 'Ask as this CNI network does, and say which servers it believes' -r
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l cni-conf-dir -d 'Where CNI networks are configured' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -l json -d 'Print everything as one JSON object, at the end'
complete -c leasehold -n "__fish_leasehold_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l cni-bin-dir -d 'The directory for CNI plugins, instead of those that the host\'s runtimes use; made if it is missing' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l state-dir -d 'The daemon\'s store of leases: nothing is changed if a later release wrote it' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l root -d 'The host\'s root directory, for a container or an image' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l host-local -d 'Install the plugin host-local too'
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l force -d 'Replace plugins that are not leasehold\'s, and keep them for `leasehold uninstall`'
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l update -d 'Only replace what was installed before, as after an upgrade'
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -l systemd -d 'Install and start the daemon as a systemd service'
complete -c leasehold -n "__fish_leasehold_using_subcommand install" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand uninstall" -l cni-bin-dir -d 'The directory for CNI plugins, instead of those that the host\'s runtimes use' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand uninstall" -l root -d 'The host\'s root directory, for a container or an image' -r -F
complete -c leasehold -n "__fish_leasehold_using_subcommand uninstall" -l systemd -d 'Stop the systemd service and remove it'
complete -c leasehold -n "__fish_leasehold_using_subcommand uninstall" -s h -l help -d 'Print help'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "daemon" -d 'Hold leases until told to stop'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "list" -d 'Show all leases'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "show" -d 'Show everything about one lease: its server and options, what is on its interface, its last events'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "status" -d 'Show how the daemon is doing, and what needs attention'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "events" -d 'Show what happened to leases: the last 10,000 events'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "renew" -d 'Extend leases now, each in turn'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "release" -d 'Give leases back to their servers'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "doctor" -d 'Check this host as an installer would: one line per check, and how to fix each fault'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "capture" -d 'Write the DHCP and ARP frames of leases to a file that Wireshark opens, from now until stopped'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "log" -d 'Show what the daemon logs, or change it for a while'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "exporter" -d 'Serve metrics for Prometheus, and a web page, over TCP; needs no privilege'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "probe" -d 'Ask the DHCP servers of a LAN what they offer, without taking it; needs no daemon'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "install" -d 'Put the plugin where this host\'s runtimes look for it'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "uninstall" -d 'Remove the plugin, and put back what it replaced'
complete -c leasehold -n "__fish_leasehold_using_subcommand help; and not __fish_seen_subcommand_from daemon list show status events renew release doctor capture log exporter probe install uninstall help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
