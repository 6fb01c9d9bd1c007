"""The program that was installed with the module, in the layouts of pip."""

import importlib.util
import os
import shutil
import tempfile
import unittest
from unittest import mock

from mcp_leash import _binary


class Packaged(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)

    def put(self, path, mode=0o644):
        path = os.path.join(self.dir, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
        os.chmod(path, mode)

    def found(self, packages):
        """What the module finds if it is in this directory, below ours where it can be."""
        place = os.path.join(self.dir, packages, "mcp_leash")
        os.makedirs(place, exist_ok=True)
        copy = shutil.copy(_binary.__file__, place)
        spec = importlib.util.spec_from_file_location("packaged", copy)
        module = importlib.util.module_from_spec(spec)
        with mock.patch("sys.dont_write_bytecode", True):
            spec.loader.exec_module(module)
        with mock.patch("sysconfig.get_path", return_value=os.path.join(self.dir, "scripts")):
            path = module.packaged_binary()
        return path and os.path.relpath(path, self.dir)

    def test_the_program_of_the_same_prefix(self):
        self.put("venv/bin/leash", 0o755)
        self.put("scripts/leash", 0o755)
        self.assertEqual(self.found("venv/lib/python3.12/site-packages"), "venv/bin/leash")
        self.assertEqual(self.found("other/lib/python3.12/site-packages"), "scripts/leash")

    def test_the_program_beside_the_modules_of_a_target(self):
        self.put("target/bin/leash", 0o755)
        self.put("target/mcp_leash-0.1.0.dist-info/RECORD")
        self.assertEqual(self.found("target"), "target/bin/leash")

    def test_a_source_tree_has_no_program(self):
        self.put("src/bin/leash", 0o755)
        self.put("scripts/leash", 0o755)
        self.assertIsNone(self.found("src"))

    def test_a_file_that_cannot_be_executed_is_not_the_program(self):
        self.put("venv/bin/leash", 0o644)
        self.assertIsNone(self.found("venv/lib/python3.12/site-packages"))

    def test_the_variable_comes_first(self):
        with mock.patch.dict(os.environ, {"LEASH_BIN": "/opt/leash"}):
            self.assertEqual(_binary.native_binary(), "/opt/leash")
        with mock.patch.dict(os.environ, {"LEASH_BIN": ""}):
            self.assertEqual(_binary.native_binary(), "leash")


if __name__ == "__main__":
    unittest.main()
