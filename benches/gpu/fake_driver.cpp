// A driver with the given answers and nothing behind them: as far as a GPU server gets on a machine without a GPU.
//
//     c++ -DINIT=0 -DVERSION=13000 -DCOUNT=1 -shared -fPIC -o libcuda.so.1 fake_driver.cpp

extern "C" int cuInit(unsigned) { return INIT; }

extern "C" int cuDriverGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

extern "C" int cuDeviceGetCount(int *count) {
    *count = COUNT;
    return 0;
}

extern "C" int cuDeviceGet(int *device, int index) {
    *device = index;
    return 0;
}

// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR is 75: a Hopper.
extern "C" int cuDeviceGetAttribute(int *value, int attribute, int) {
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
