#!/bin/sh
# The sample cluster as a program that prints Ansible's dynamic inventory.
[ "$1" = --list ] || exit 1
cat <<'JSON'
{
  "gpu": {"hosts": ["gpu01", "gpu02", "gpu03"], "vars": {"ansible_user": "train"}},
  "front": {"hosts": ["login"]},
  "cluster": {"children": ["gpu", "front"]},
  "_meta": {
    "hostvars": {
      "gpu01": {"ansible_host": "10.0.0.11", "mnspawn_slots": 8},
      "gpu02": {"ansible_host": "10.0.0.12", "mnspawn_slots": 8},
      "gpu03": {"ansible_host": "10.0.0.13", "ansible_port": 2222, "mnspawn_slots": 4},
      "login": {"ansible_host": "10.0.0.2", "ansible_user": "admin", "mnspawn_slots": 1}
    }
  }
}
JSON
