#!/usr/bin/env python3
"""migrations_test.py FILE... - the migrations FILE... are as they were released; prints TAP.

A database that has passed a migration is not migrated by it again. A released migration that
changes therefore gives new databases another schema than old ones.
"""
import hashlib
import os
import sys

# Name of each migration, and SHA-256 of its bytes. A line is added with a new migration, and is not
# changed once the migration is released.
RELEASED = {
    "0001_tables.sql": "7c92c51cf4b4436d9ead9329a1fe695fbe8e13590d34cf9058d5be54a39eb2d0",
    "0002_tenants.sql": "f1724793794608073d78eb903cd13128466a0e7f47b10a2957b6741e0e5cdd97",
    "0003_usage.sql": "1c70b8038dc90ccd9cb17c3361936ba5a06b9b68eeccd5758c2329914c957702",
    "0004_removed_users.sql": "32d267e937631800201a626856f5aa0f3d105587897a76a5f93d3968d299d2e4",
    "0005_pools.sql": "a5ac01c9ba01ad8e8ef1d11a02550b1d56f90ad3168719d197edc83f990eb7f5",
    "0006_context_output.sql": "b8849c7cb73eaafdd1e9953268e1ec9d36a57911c24f54a7d3c2bfa4cffd1761",
    "0007_terminal_and_context.sql": "7e9343ac814e1eb1403794a60e47d76b7e5b55f0727dba2c0c79783f7980c2c9",
    "0008_sandbox_names.sql": "5f61e2711aeef5af85acad9cedd8688a5b9fd2a3144816b66a3264bf88229d7b",
    "0009_outcome.sql": "90251119914b57ec6663190b56e32dd2a25d8e9bde8c07154e9bc1b4edd9126d",
    "0010_sandbox_resources.sql": "a92438688cc9c49c14051083030df031609a7e728fcba2e2a74e9ef00b9082e7",
    "0011_hint_and_context_reset.sql": "a4d346b33c2cef869f19768a2901d4da173510810ae75ead19439cdba00abfb0",
    "0012_sandbox_metadata.sql": "6f712660ebd993fde6cf0f15116c12386c3b19332040b612fd7c61828d8fc075",
    "0013_scripts.sql": "a21c135f964cf0ea3e7a62abb2b710a7a6130292b830e893912a1edb8aeb772b",
    "0014_secrets.sql": "0382b1cfe738b7878aec2a61fcc746d4f7a67dc34cd6898c65938e6992dcc292",
}


def problem_of(path):
    """None, or the reason why this file fails."""
    name = os.path.basename(path)
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    if name not in RELEASED:
        return f'a new migration: add "{name}": "{digest}" to RELEASED in {os.path.basename(__file__)}'
    if digest != RELEASED[name]:
        return "a released migration was changed: restore its text, and write the change as a new migration"
    return None


def main():
    paths = sys.argv[1:]
    built = {os.path.basename(path) for path in paths}
    stored = {name for path in paths for name in os.listdir(os.path.dirname(path)) if name.endswith(".sql")}
    results = [(f"{os.path.basename(path)} is as released", problem_of(path)) for path in paths]
    for name in sorted(stored - built):
        results.append((f"{name} is built", "a migration that is not in src/store/meson.build"))
    for name in sorted(set(RELEASED) - built):
        results.append((f"{name} exists", "a released migration was removed: restore it"))
    print(f"1..{len(results)}")
    for number, (name, problem) in enumerate(results, 1):
        print(f"{'not ok' if problem else 'ok'} {number} - {name}")
        if problem:
            print(f"# {problem}")
    return any(problem for _, problem in results)


sys.exit(main())
