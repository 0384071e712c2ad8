import psutil
import pytest

from engine.accelerator.cpu import default_threads, threads_of_replica
from engine.accelerator.find import find_accelerator
from engine.choices import AcceleratorKind
from engine.errors import ConfigError


def test_the_cpu_is_there_and_says_what_it_has():
    cpu = find_accelerator(AcceleratorKind.CPU)
    assert (cpu.kind, cpu.device) == (AcceleratorKind.CPU, "cpu")
    assert 0 < cpu.memory_free_bytes() <= psutil.virtual_memory().total
    assert cpu.name()
    cpu.synchronize()


def test_a_cuda_device_that_is_not_there_is_a_config_error():
    with pytest.raises(ConfigError, match="accelerator"):
        find_accelerator(AcceleratorKind.CUDA, index=99)


def test_replicas_share_the_threads_and_each_has_one():
    assert threads_of_replica(8, 2) == 4
    assert threads_of_replica(1, 3) == 1


def test_a_narrow_model_gets_one_thread_a_replica_and_a_wide_one_torch_s_own_number():
    assert default_threads(192, 2) == 2
    assert default_threads(5120, 2) is None
    assert default_threads(None, 1) is None
