/* cove-runtime - PID 1 of a sandbox. Its one socket is descriptor 3. */
int main(void)
{
    return 0;
}
