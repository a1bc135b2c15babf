from clockwatt.errors import ClockwattError

try:
    from pynvml import NVML_ERROR_LIBRARY_NOT_FOUND  # noqa: F401  # which other packages of this name lack
except ImportError as error:
    raise ClockwattError(
        f"the package nvidia-ml-py cannot be imported ({error}). Install it: `pip install nvidia-ml-py`."
    ) from error
