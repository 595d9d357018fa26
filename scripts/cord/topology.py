"""Devices and nodes by name, and the parts of them that experiments take. Pure; `self_test` checks them.

Devices are d1, d2, …; the first node has the first ones, as on the testbed. p1, p2, … are the nodes' processors.
"""

import testbed


class Topology:
    def __init__(self, devices, nodes, has_processors=True):
        self.devices = [f"d{number + 1}" for number in range(devices)]
        self.nodes = [[name for number, name in enumerate(self.devices)
                       if testbed.node_of(number, devices, nodes) == node] for node in range(nodes)]
        self.processors = [f"p{node + 1}" for node in range(nodes)] if has_processors else []

    def layouts(self):
        """[(nodes, devices)]: 1, 2, 4, … devices of each of the first 1, 2, … nodes."""
        found = []
        for nodes in range(1, len(self.nodes) + 1):
            each = 1
            while each <= min(map(len, self.nodes[:nodes])):
                found.append((nodes, [name for node in self.nodes[:nodes] for name in node[:each]]))
                each *= 2
        return sorted(found, key=lambda layout: (len(layout[1]), layout[0]))

    def pair(self):
        """Two devices, of one node if a node has two."""
        return (self.nodes[0] if len(self.nodes[0]) > 1 else self.devices)[:2]

    def of_processor(self, processor):
        """The devices whose work a node's processor does."""
        return self.nodes[self.processors.index(processor)]
