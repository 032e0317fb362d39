"""check_rules.py - which modules and names code of the simple tier may use.

Only the names of rules are here; severity and texts are in src/service/validate/rules.def.
tools/doctables prints these tables in docs/lightweight.md, so each is one literal.
"""

# Modules without access to files, processes, the network or other memory. A name stands for its
# submodules too, unless they have a row of their own.
ALLOWED = """
abc array ast base64 binascii bisect calendar cmath codecs collections colorsys contextlib copy csv dataclasses
datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io itertools json keyword math
numbers operator pprint queue random re reprlib secrets statistics string struct sys textwrap time timeit traceback
types typing unicodedata urllib.parse uuid warnings zlib zoneinfo __future__
"""

# Allowed where the template has them: python-data.
DATA = "numpy pandas matplotlib"

# Modules whose results differ between two runs of the same code.
IMPURE = "calendar datetime random secrets sys time timeit uuid zoneinfo numpy pandas matplotlib"

REFUSED = {
    "import_process": """os posix posixpath nt subprocess multiprocessing concurrent signal pty pwd grp resource
        sched asyncio threading _thread fcntl termios tty syslog platform getpass pexpect psutil sh""",
    "import_network": """socket _socket ssl select selectors http urllib requests httpx aiohttp urllib3 ftplib
        smtplib poplib imaplib telnetlib nntplib xmlrpc socketserver asyncore asynchat webbrowser wsgiref paramiko
        websocket websockets boto3""",
    "import_files": """pathlib shutil tempfile glob fileinput linecache filecmp mimetypes zipfile tarfile gzip bz2
        lzma sqlite3 dbm shelve configparser netrc logging""",
    "import_native": "ctypes _ctypes cffi mmap",
    "import_dynamic": """importlib imp runpy pkgutil zipimport zipapp code codeop builtins marshal pickle _pickle
        dill cloudpickle""",
    "import_introspection": "gc inspect dis symtable sysconfig site atexit pdb bdb trace tracemalloc faulthandler",
    "import_install": "pip ensurepip setuptools distutils venv pkg_resources",
}

# References to names with dots, as the imports of the code resolve them.
NAMES = {
    "call_eval": """eval exec compile types.FunctionType types.CodeType timeit.timeit timeit.repeat timeit.Timer
        timeit.main typing.get_type_hints""",
    "call_open": """open io.open io.open_code io.FileIO codecs.open numpy.load numpy.save numpy.savez numpy.loadtxt
        numpy.savetxt numpy.fromfile numpy.memmap numpy.genfromtxt pandas.read_csv pandas.read_excel
        pandas.read_json pandas.read_parquet pandas.read_pickle pandas.read_sql pandas.read_html pandas.read_table
        pandas.read_hdf pandas.ExcelWriter matplotlib.pyplot.savefig matplotlib.pyplot.imread""",
    "call_import": "__import__",
    "call_namespace": "globals locals",
    "call_debugger": "breakpoint",
    "call_input": "input sys.stdin",
    "call_show": "matplotlib.pyplot.show",
    "call_sleep": "time.sleep",
    "interpreter_state": """__builtins__ __loader__ __spec__ sys.modules sys._getframe sys._current_frames
        sys.settrace sys.setprofile sys.path sys.meta_path sys.path_hooks sys.path_importer_cache
        sys.setrecursionlimit sys.addaudithook sys.displayhook sys.excepthook sys.unraisablehook""",
}

# Values that have the name of a refused module.
NOT_MODULES = "sys.platform numpy.select numpy.trace numpy.linalg.trace"

# Internal names of modules that lead nowhere.
PLAIN_INTERNALS = "__name__ __doc__ __version__"

# Attributes of any object that lead from a value to its class, its module or its frame.
WALKS = """
__base__ __bases__ __mro__ mro __subclasses__ __globals__ __builtins__ __code__ __closure__ __getattribute__
__import__ __loader__ __spec__ __reduce__ __reduce_ex__ __subclasshook__ __init_subclass__ __set_name__ f_back
__self__ f_builtins f_code f_globals f_locals tb_frame tb_next gi_frame gi_code cr_frame ag_frame func_globals
"""

# Names whose value differs between two runs, or that depend on input.
IMPURE_NAMES = "id hash object input breakpoint"
